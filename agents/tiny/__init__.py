"""The embedded model, a small causal language model that ships with the package, and its start checkpoints."""

from importlib.resources import files
from pathlib import Path

TINY_DIRECTORY = Path(str(files(__name__)))
"""Folder of the model and its tokenizer, for `from_pretrained`."""
STARTS = {f"tiny-{folder.name}": folder for folder in sorted((TINY_DIRECTORY / "starts").iterdir())}
"""Name of a start checkpoint, such as "tiny-MiniShift" -> its folder, for `from_pretrained`."""

__all__ = ["STARTS", "TINY_DIRECTORY"]
