"""The code under test as a module, its standard streams, and its errors as data."""

from __future__ import annotations

import builtins
import io
import json
import random
import sys
import types
from typing import TextIO

FILE_NAME = "<solution>"
_MAX_MESSAGE = 500


def _memory() -> tuple[io.BytesIO, TextIO]:
    raw = io.BytesIO()
    return raw, io.TextIOWrapper(raw, encoding="utf-8", errors="backslashreplace", newline="\n")


class Streams:
    """Standard streams in memory. Made once, before the first fork; each run then writes to a copy of its own."""

    def __init__(self) -> None:
        (self._out, self._stdout), (self._err, self._stderr), (_, self._stdin) = _memory(), _memory(), _memory()

    def attach(self, stdin: str) -> None:
        """Put them in the place of the process's own."""
        if stdin:
            raw = io.BytesIO(stdin.encode("utf-8", "surrogatepass"))
            self._stdin = io.TextIOWrapper(raw, encoding="utf-8", errors="replace")
        sys.stdin, sys.stdout, sys.stderr = self._stdin, self._stdout, self._stderr

    def texts(self, max_bytes: int) -> str:
        """What was written to stdout and to stderr, each cut to `max_bytes`, as two JSON strings."""
        return f"{_text(self._stdout, self._out, max_bytes)},{_text(self._stderr, self._err, max_bytes)}"


def _text(stream: TextIO, raw: io.BytesIO, max_bytes: int) -> str:
    try:
        stream.flush()
        written = raw.getvalue()
    except (ValueError, AttributeError):  # the program closed or detached it
        return '""'
    return json.dumps(written[:max_bytes].decode("utf-8", "replace")) if written else '""'


def _message(error: BaseException) -> str:
    try:
        return str(error)[:_MAX_MESSAGE]
    except BaseException:
        return "(its text cannot be read)"


def summary(error: BaseException) -> str:
    """An exception in one line."""
    return f"{type(error).__name__}: {_message(error)}"


def failure(error: BaseException) -> str:
    """An exception as JSON: type name, message, line of the solution or null, builtin types that it extends."""
    line, step = None, error.__traceback__
    while step is not None:
        if step.tb_frame.f_code.co_filename == FILE_NAME:
            line = step.tb_lineno
        step = step.tb_next
    if line is None and isinstance(error, SyntaxError):
        line = error.lineno
    bases = [base.__name__ for base in type(error).__mro__ if base.__module__ == "builtins"]
    return json.dumps([type(error).__name__[:100], _message(error), line, bases])


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
