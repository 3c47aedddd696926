"""The embedded model: a small causal language model that ships with the package."""

from importlib.resources import files
from pathlib import Path

TINY_DIRECTORY = Path(str(files(__name__)))
"""The folder that `from_pretrained` reads the model and its tokenizer from."""

__all__ = ["TINY_DIRECTORY"]
