"""MiniBuild: the building task for small models: many parts, a sparse reward, partners out of sight."""

from .demonstrations import demonstration
from .env import MiniBuild
from .prompts import VOCABULARY
from .rules import new_goal

__all__ = ["VOCABULARY", "MiniBuild", "demonstration", "new_goal"]
