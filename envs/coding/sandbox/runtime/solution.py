"""The code under test as a module, its standard streams, and its errors as data."""

from __future__ import annotations

import builtins
import io
import random
import sys
import types
from typing import Any

FILE_NAME = "<solution>"
MAX_MESSAGE = 500
Failure = list[Any]
"""[type name, message, line of the solution or None, names of the builtin exceptions that the type extends]"""


class Streams:
    """In-memory stdin, stdout and stderr in place of the process's own."""

    def __init__(self, stdin: str) -> None:
        self._out, self._err = io.BytesIO(), io.BytesIO()
        sys.stdin = io.TextIOWrapper(io.BytesIO(stdin.encode("utf-8", "surrogatepass")), encoding="utf-8")
        sys.stdout = self._stdout = io.TextIOWrapper(self._out, encoding="utf-8", errors="backslashreplace")
        sys.stderr = self._stderr = io.TextIOWrapper(self._err, encoding="utf-8", errors="backslashreplace")

    def texts(self, max_bytes: int) -> list[str]:
        """What was written to stdout and to stderr, each cut to `max_bytes`."""
        written = []
        for stream, raw in ((self._stdout, self._out), (self._stderr, self._err)):
            try:
                stream.flush()
                written.append(raw.getbuffer()[:max_bytes].tobytes().decode("utf-8", "replace"))
            except (ValueError, AttributeError):  # the program closed or detached it
                written.append("")
        return written


def failure(error: BaseException) -> Failure:
    """An exception as plain data; nothing of the object itself goes out."""
    try:
        message = str(error)[:MAX_MESSAGE]
    except BaseException:
        message = "(its text cannot be read)"
    line, step = None, error.__traceback__
    while step is not None:
        if step.tb_frame.f_code.co_filename == FILE_NAME:
            line = step.tb_lineno
        step = step.tb_next
    if line is None and isinstance(error, SyntaxError):
        line = error.lineno
    bases = [base.__name__ for base in type(error).__mro__ if base.__module__ == "builtins"]
    return [type(error).__name__[:100], message, line, bases]


def load(code: str, name: str, seed: int) -> types.ModuleType:
    """Run the code as a fresh module that `sys.modules` knows, as dataclasses and typing expect.

    Raises:
        BaseException: whatever the code raises, SystemExit included.
    """
    random.seed(seed)
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed(seed % (1 << 32))
    module = types.ModuleType(name)
    module.__dict__["__builtins__"] = builtins
    sys.modules[name] = module
    exec(compile(code, FILE_NAME, "exec", dont_inherit=True), module.__dict__)
    return module
