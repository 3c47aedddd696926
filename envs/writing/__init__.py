"""Writing environments: two to four writers, one turn."""

from .documents.env import TLDR, ArxivExpansion
from .mini_writing.env import MiniWriting

__all__ = ["TLDR", "ArxivExpansion", "MiniWriting"]
