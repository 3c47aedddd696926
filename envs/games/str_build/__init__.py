"""StrBuild: builders write a word in blocks."""

from .env import StrBuild, words
from .rules import BLOCKS, PALETTES, new_word, score, word

__all__ = ["BLOCKS", "PALETTES", "StrBuild", "new_word", "score", "word", "words"]
