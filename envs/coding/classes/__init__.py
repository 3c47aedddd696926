"""Two programmers, one class: ClassEval."""

from .env import ClassEval
from .skeletons import ClassTask, task_of

__all__ = ["ClassEval", "ClassTask", "task_of"]
