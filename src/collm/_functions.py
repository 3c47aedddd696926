"""Functions of the user: import by name, and calls whose errors become one line."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

from ._errors import UserError

T = TypeVar("T")


def load_function(path: str) -> Callable[..., Any]:
    """Import "package.module:function". Raise `UserError` if the import fails, or the object is not callable."""
    module, _, name = path.partition(":")
    function: Callable[..., Any] = called(
        f"{path!r} cannot be loaded as package.module:function, it", lambda: getattr(import_module(module), name)
    )
    if not callable(function):
        raise UserError(f"{path!r} is {function!r:.100}, which is not callable; give a function")
    return function


def called(name: str, call: Callable[[], T], kind: type[UserError] = UserError) -> T:
    """Call code of the user. An error, also SystemExit, becomes an error of the class `kind` with the line of code."""
    try:
        return call()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # the code of the user must not end collm
        last = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(last.filename).name}, line {last.lineno}"
        raise kind(f"{name} raised {type(error).__name__}: {error} ({place})") from error
