"""ClassEval: an environment in which programmers write the methods of one class."""

from .env import ClassEval
from .skeletons import ClassTask, task_of

__all__ = ["ClassEval", "ClassTask", "task_of"]
