"""MiniCode: a coding task for small models. A helper and a main programmer write one line of Python each."""

from .demonstrations import demonstration
from .env import MiniCode
from .prompts import VOCABULARY
from .rules import new_task

__all__ = ["VOCABULARY", "MiniCode", "demonstration", "new_task"]
