"""BridgeBuild: a bridge from two banks, in the fog."""

from .env import BridgeBuild, bridges
from .generator import new_bridge
from .rules import Bridge

__all__ = ["Bridge", "BridgeBuild", "bridges", "new_bridge"]
