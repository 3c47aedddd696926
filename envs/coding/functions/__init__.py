"""HumanEval, MBPP and CoopHumanEval: a team writes one function."""

from .env import MBPP, CoopHumanEval, FunctionPair, HumanEval
from .problems import Problem, problem_of

__all__ = ["MBPP", "CoopHumanEval", "FunctionPair", "HumanEval", "Problem", "problem_of"]
