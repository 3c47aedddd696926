"""Thread-safe `ast.parse`. Older Python versions fail if two threads parse at the same time (python/cpython#106905)."""

from __future__ import annotations

import ast
import threading
import warnings

_LOCK = threading.Lock()


def parse(source: str) -> ast.Module:
    """Parse source code without warnings, in one thread at a time. Raises the same errors as `ast.parse`."""
    with _LOCK, warnings.catch_warnings():  # inside the lock, because all threads share the filters
        warnings.simplefilter("ignore")
        return ast.parse(source)
