"""Spaces: texts of bounded length, and which actions of a space are legal."""

from .open_text import OpenText, is_unicode_text

__all__ = ["OpenText", "is_unicode_text"]
