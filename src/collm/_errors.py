"""Base class of errors caused by users, files and services, and functions for error messages."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterable


class UserError(ValueError):
    """Fault of the user, a file or a service. The message contains the value, the rule and the fix.

    The command line prints only the message. Other exceptions are bugs and show their traceback.
    """


def caller_level() -> int:
    """Return the `stacklevel` with which `warnings.warn` shows the user's line of code instead of a line of collm."""
    level, frame = 1, sys._getframe(1)
    inner = {"collm", "contextlib", "functools"}  # contextlib and functools wrap functions of collm
    while frame.f_back is not None and frame.f_globals["__name__"].partition(".")[0] in inner:
        level, frame = level + 1, frame.f_back
    return level


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a hint for an unknown name: "did you mean ...?" with the most similar name, or a list of all names."""
    names = list(known)
    near = near_names(name, names)
    return f"did you mean {near[0]!r}?" if near else f"choose one of {', '.join(names)}"


def near_names(name: str, names: Iterable[str]) -> list[str]:
    """Return the most similar name, or no name. A name with another first letter must be very similar or contain it."""
    alike = [each for each in names if each[:1] == name[:1] or name in each]
    return difflib.get_close_matches(name, alike, 1, 0.5) or difflib.get_close_matches(name, list(names), 1, 0.75)
