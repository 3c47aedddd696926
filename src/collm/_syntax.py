"""Python source as a syntax tree, by one thread at a time.

Older Pythons count the depth of the tree that they build in one place for all threads: two threads that parse at once
may get `SystemError: AST constructor recursion depth mismatch` (python/cpython#106905) for source that is right.
"""

from __future__ import annotations

import ast
import threading
import warnings

_LOCK = threading.Lock()


def parse(source: str) -> ast.Module:
    """`ast.parse`, for threads; what Python warns of in the source is not shown.

    Raises:
        SyntaxError, ValueError, MemoryError, RecursionError: as `ast.parse` does.
    """
    with _LOCK, warnings.catch_warnings():  # within the lock: filters, too, belong to all threads
        warnings.simplefilter("ignore")
        return ast.parse(source)
