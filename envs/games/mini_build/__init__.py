"""MiniBuild: builders divide one list of parts. For small models."""

from .demonstrations import demonstration
from .env import MiniBuild
from .prompts import VOCABULARY
from .rules import new_goal

__all__ = ["VOCABULARY", "MiniBuild", "demonstration", "new_goal"]
