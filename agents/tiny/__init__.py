"""The embedded model: a small causal language model that ships with the package."""

from importlib.resources import files
from pathlib import Path

TINY_DIRECTORY = Path(str(files(__name__)))
"""Folder of the model and its tokenizer, for `from_pretrained`."""

__all__ = ["TINY_DIRECTORY"]
