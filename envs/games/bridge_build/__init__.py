"""BridgeBuild: two workers build a bridge on a partly hidden map."""

from .env import BridgeBuild, bridges
from .rules import Bridge, new_bridge

__all__ = ["Bridge", "BridgeBuild", "bridges", "new_bridge"]
