"""Mistakes in a call of `collm`, shown as one line."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .._errors import UserError as UserError
from .._extras import explained

MAX_LETTERS = 2_000
"""Longest line about an error; values out of files of others may be of any length."""
_OF_THE_DISK = {
    *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM),
    *(errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG),
}


@contextmanager
def refusals() -> Iterator[None]:
    """Turn the errors by which the library refuses what a person typed into `UserError`.

    Errors that no documented refusal raises (a `TypeError`, a `KeyError`) are faults of the program and pass.
    """
    try:
        yield
    except (ValueError, OSError, ImportError) as error:
        raise UserError(str(error)) from error


def line_of(error: Exception) -> str | None:
    """The line that a command prints for an error; None for a fault of the program, whose traceback is needed."""
    if isinstance(error, UserError):
        line = " ".join(str(error).split())
        return line if len(line) <= MAX_LETTERS else f"{line[:MAX_LETTERS]} …"
    if isinstance(error, ModuleNotFoundError) and (missing := explained(error)):
        return str(missing)
    if isinstance(error, OSError) and error.errno in _OF_THE_DISK:
        return f"{error.strerror}: {error.filename}" if error.filename else str(error.strerror)
    return None


def check_folder(folder: Path, option: str) -> None:
    """Refuse a folder that cannot be made or written to, before there is anything to write.

    Raises:
        UserError: naming what is in the way.
    """
    place = folder.absolute()
    while not os.path.lexists(place):
        place = place.parent
    if not place.is_dir():
        raise UserError(f"{option} {folder}: {place} is a file, not a folder; give another {option}")
    if not os.access(place, os.W_OK | os.X_OK):
        raise UserError(f"{option} {folder}: nothing can be written to {place}; give another {option}")
