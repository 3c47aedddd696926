"""Errors of the user, of files and of services, and helpers for their messages."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterable


class UserError(ValueError):
    """An error of the user, a file or a service; the message has the value, the rule and the fix.

    The command line prints only the message. Other exceptions are bugs and show their traceback.
    """


def caller_level() -> int:
    """`stacklevel` for a warning of the calling function, so that it names the line outside collm."""
    level, frame = 1, sys._getframe(1)
    inner = {"collm", "contextlib", "functools"}  # the last two wrap functions of collm
    while frame.f_back is not None and frame.f_globals["__name__"].partition(".")[0] in inner:
        level, frame = level + 1, frame.f_back
    return level


def nearest(name: str, known: Iterable[str]) -> str:
    """End of a message about an unknown name: "did you mean ...?" with the nearest known name, else all names."""
    names = list(known)
    near = difflib.get_close_matches(name, names, 1, 0.5)
    return f"did you mean {near[0]!r}?" if near else f"choose one of {', '.join(names)}"
