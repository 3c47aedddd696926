"""MiniShift: the dividing task for small models: fresh parts every turn, a sparse reward, partners out of sight."""

from .demonstrations import demonstration
from .env import MiniShift
from .rules import new_shift

__all__ = ["MiniShift", "demonstration", "new_shift"]
