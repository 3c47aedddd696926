"""HumanEval, MBPP and CoopHumanEval: environments in which programmers write one function together."""

from .env import MBPP, CoopHumanEval, FunctionPair, HumanEval
from .problems import Problem, problem_of

__all__ = ["MBPP", "CoopHumanEval", "FunctionPair", "HumanEval", "Problem", "problem_of"]
