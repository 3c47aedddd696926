"""Thread-safe `ast.parse`.

Older Python versions raise `SystemError: AST constructor recursion depth mismatch` (python/cpython#106905) for valid
source if two threads parse at the same time.
"""

from __future__ import annotations

import ast
import threading
import warnings

_LOCK = threading.Lock()


def parse(source: str) -> ast.Module:
    """Parse source code without warnings. Only one thread parses at a time.

    Raises:
        SyntaxError, ValueError, MemoryError, RecursionError: in the same cases as `ast.parse`.
    """
    with _LOCK, warnings.catch_warnings():  # inside the lock, because all threads share the filters
        warnings.simplefilter("ignore")
        return ast.parse(source)
