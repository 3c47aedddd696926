"""Two programmers, one function: HumanEval, MBPP and CoopHumanEval."""

from .env import MBPP, CoopHumanEval, FunctionPair, HumanEval
from .problems import Problem, problem_of

__all__ = ["MBPP", "CoopHumanEval", "FunctionPair", "HumanEval", "Problem", "problem_of"]
