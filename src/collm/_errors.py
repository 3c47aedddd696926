"""The error for what a person, a file or a service got wrong; every other exception is a fault of the program."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterable


class UserError(ValueError):
    """Something asked for cannot be: the message says what, which value, and how to mend it.

    The command line prints the message alone, on one line; any other exception shows its traceback.
    """


def caller_level() -> int:
    """The `stacklevel` with which a warning of the calling function names the line outside collm that led to it."""
    level, frame = 1, sys._getframe(1)
    inner = {"collm", "contextlib", "functools"}  # the last two wrap our functions
    while frame.f_back is not None and frame.f_globals["__name__"].partition(".")[0] in inner:
        level, frame = level + 1, frame.f_back
    return level


def nearest(name: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown name: the known name nearest to it, else all of them."""
    names = list(known)
    near = difflib.get_close_matches(name, names, 1, 0.5)
    return f"did you mean {near[0]!r}?" if near else f"choose one of {', '.join(names)}"
