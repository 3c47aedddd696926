"""Where an author's code went wrong: the method, the line of the file, and what it says there."""

from __future__ import annotations

import inspect
import linecache
import re
import traceback
from types import CodeType
from typing import Any

from ..core import TextParallelEnv

_HOOKS = ("deal", "play", "truth", "scene", "reference_reply", "__init__", "reset", "step", "state")
"""Methods that an author writes; of those that a base class brings, only its subclass's own."""


def blamed(error: BaseException, env: Any) -> str | None:
    """The method that an error comes from and its place, as "play(), at games/mine.py:37: number = int(reply)".

    An error that was raised in the author's code is placed where it was raised; one that was raised because of what a
    method returned, where that method begins. None where the author's code has no part in it.
    """
    methods = _methods(env)
    files = {code.co_filename for code in methods.values()}
    frames = traceback.extract_tb(error.__traceback__)
    entered = None
    for walked, _ in traceback.walk_tb(error.__traceback__):
        names = [name for name, code in methods.items() if walked.f_code is code]
        entered = names[0] if names else entered
    own = [frame for frame in frames if frame.filename in files and not frame.filename.startswith("<")]
    if entered is not None and own:
        line = f": {own[-1].line}" if own[-1].line else ""
        return f"{entered}(), at {own[-1].filename}:{own[-1].lineno}{line}"
    named = re.match(r"(\w+)\(\)", str(error))
    if named is not None and named[1] in methods:
        return f"{named[1]}(), which begins at {place_of(methods[named[1]])}"
    return None


def place_of(code: CodeType) -> str:
    """File and line where a method begins."""
    first = code.co_firstlineno
    while linecache.getline(code.co_filename, first).lstrip().startswith("@"):
        first += 1
    return f"{code.co_filename}:{first}"


def _methods(env: Any) -> dict[str, CodeType]:
    """Code of the methods that the environment's own class, or one between it and the library's, defines."""
    found: dict[str, CodeType] = {}
    for kind in type(getattr(env, "unwrapped", env)).__mro__:
        if kind is TextParallelEnv or kind.__module__.startswith(("pettingzoo.", "builtins")):
            break
        for name in _HOOKS:
            function = inspect.unwrap(vars(kind)[name]) if callable(vars(kind).get(name)) else None
            if inspect.isfunction(function):
                found.setdefault(name, function.__code__)
    return found
