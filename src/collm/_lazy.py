"""Exports of a package that are imported on first use (PEP 562).

A package lists its exports as imports for type checkers, and then calls `attach(__name__, __file__)`:

    if TYPE_CHECKING:
        from .config import ModelConfig as ModelConfig
"""

from __future__ import annotations

import ast
import importlib
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ._extras import explained

_LOCK = threading.Lock()  # older Python versions fail if two threads parse at the same time (python/cpython#106905)


def attach(package: str, file: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` of a package, from the imports under its `if TYPE_CHECKING`."""
    homes = _homes(file)

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home = homes[name]
        try:
            if home == ".":  # a subpackage
                return importlib.import_module(f".{name}", package)
            return getattr(importlib.import_module(home, package), name)
        except ModuleNotFoundError as error:
            raise (explained(error) or error) from error.__cause__

    return get, lambda: sorted(homes), sorted(homes)


def _homes(file: str) -> dict[str, str]:
    """Return a dict export -> its module, relative to the package, such as ".runs.api"."""
    body = parse(Path(file).read_text(encoding="utf-8")).body
    blocks = [node.body for node in body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    imports = [node for block in blocks for node in block if isinstance(node, ast.ImportFrom)]
    return {alias.name: "." * node.level + (node.module or "") for node in imports for alias in node.names}


def parse(source: str) -> ast.Module:
    """Parse source code without warnings, in one thread at a time. Raises the same errors as `ast.parse`."""
    with _LOCK, warnings.catch_warnings():  # inside the lock, because all threads share the filters
        warnings.simplefilter("ignore")
        return ast.parse(source)
