"""Writing together: two writers, one turn."""

from .env import TLDR, ArxivExpansion
from .mini import MiniWriting

__all__ = ["TLDR", "ArxivExpansion", "MiniWriting"]
