"""BridgeBuild: a bridge from two banks, in the fog."""

from .env import BridgeBuild, bridges
from .rules import Bridge, new_bridge

__all__ = ["Bridge", "BridgeBuild", "bridges", "new_bridge"]
