"""Exception for faults of users, files and services, and helpers for error messages."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterable


class UserError(ValueError):
    """Fault of the user, a file or a service. The message contains the value, the rule and the fix.

    The command line prints only the message. Other exceptions are bugs and show their traceback.
    """


def caller_level() -> int:
    """Return the `stacklevel` with which a warning shows the line outside collm that led to it."""
    level, frame = 1, sys._getframe(1)
    inner = {"collm", "contextlib", "functools"}  # the last two wrap functions of collm
    while frame.f_back is not None and frame.f_globals["__name__"].partition(".")[0] in inner:
        level, frame = level + 1, frame.f_back
    return level


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a hint for an unknown name: "did you mean ...?" with the most similar name, or a list of all names."""
    names = list(known)
    near = difflib.get_close_matches(name, names, 1, 0.5)
    return f"did you mean {near[0]!r}?" if near else f"choose one of {', '.join(names)}"
