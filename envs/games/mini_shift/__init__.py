"""MiniShift: builders divide a new list of parts every turn. For small models."""

from .demonstrations import demonstration, varied_demonstration
from .env import MiniShift
from .rules import new_shift

__all__ = ["MiniShift", "demonstration", "new_shift", "varied_demonstration"]
