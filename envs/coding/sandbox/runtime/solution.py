"""The code under test as a module, its standard streams, and its errors as data."""

from __future__ import annotations

import builtins
import io
import sys
import types
from typing import Any, BinaryIO

from .codec import string

FILE_NAME = "<solution>"
_MAX_MESSAGE = 500


class _Text(io.StringIO):
    """Text written to a standard stream, with what programs expect of one besides."""

    @property
    def buffer(self) -> BinaryIO:
        return _Bytes(self)

    def reconfigure(self, **_: object) -> None:
        """Nothing here depends on an encoding or on buffering."""


class _Bytes(io.BytesIO):
    def __init__(self, text: _Text) -> None:
        super().__init__()
        self._text = text

    def write(self, data: Any) -> int:
        self._text.write(bytes(data).decode("utf-8", "backslashreplace"))
        return len(data)


class Streams:
    """Standard streams in memory. Made once, before the first fork; each run then writes to a copy of its own."""

    def __init__(self) -> None:
        self._out, self._err = _Text(), _Text()

    def attach(self) -> None:
        """Put them in the place of the process's own."""
        sys.stdin, sys.stdout, sys.stderr = io.StringIO(), self._out, self._err

    @property
    def are_used(self) -> bool:
        """Whether anything may have been written."""
        return self._out.closed or self._err.closed or self._out.tell() > 0 or self._err.tell() > 0

    def texts(self, max_length: int) -> str:
        """What was written to stdout and to stderr, each cut to `max_length`, as two JSON strings."""
        return f"{_written(self._out, max_length)},{_written(self._err, max_length)}"


def _written(stream: _Text, max_length: int) -> str:
    try:
        text = io.StringIO.getvalue(stream)
    except ValueError:  # the program closed it
        return '""'
    return string(text[:max_length])


def feed(stdin: str) -> None:
    """Let the code read this from stdin."""
    raw = io.BytesIO(stdin.encode("utf-8", "surrogatepass"))
    sys.stdin = io.TextIOWrapper(raw, encoding="utf-8", errors="replace")


def seed_generators(seed: int) -> None:
    """Seed `random`, and NumPy's global generator, where they are loaded."""
    for name in ("random", "numpy.random"):
        if name in sys.modules:
            sys.modules[name].seed(seed % (1 << 32))


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
    names = ",".join(map(string, bases))
    return (
        f"[{string(type(error).__name__[:100])},{string(_message(error))},{'null' if line is None else line},[{names}]]"
    )


def load(code: str, name: str) -> types.ModuleType:
    """Run the code as a fresh module that `sys.modules` knows, as dataclasses and typing expect.

    Raises:
        BaseException: whatever the code raises, SystemExit included.
    """
    module = types.ModuleType(name)
    module.__dict__["__builtins__"] = builtins
    sys.modules[name] = module
    exec(compile(code, FILE_NAME, "exec", dont_inherit=True), module.__dict__)
    return module
