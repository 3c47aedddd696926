"""Conversion of errors in `collm` commands to messages of one line."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .._errors import UserError as UserError
from .._extras import explained

MAX_LETTERS = 2_000  # limit of an error message, which can contain a long value from a file
_OF_THE_DISK = {
    *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM),
    *(errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG),
}


@contextmanager
def refusals() -> Iterator[None]:
    """Convert errors of the user's input to `UserError`. Other errors, such as `TypeError`, are bugs and stay."""
    try:
        yield
    except (ValueError, OSError, ImportError) as error:
        missing = explained(error) if isinstance(error, ModuleNotFoundError) else None
        raise UserError(str(missing or error)) from error


def line_of(error: Exception) -> str | None:
    """Convert an error to a message of one line. None: the error is a bug, so its traceback is needed."""
    if isinstance(error, UserError):
        line = " ".join(str(error).split())
        return line if len(line) <= MAX_LETTERS else f"{line[:MAX_LETTERS]} …"
    if isinstance(error, ModuleNotFoundError) and (missing := explained(error)):
        return str(missing)
    if isinstance(error, OSError) and error.errno in _OF_THE_DISK:
        return f"{error.strerror}: {error.filename}" if error.filename else str(error.strerror)
    torch = sys.modules.get("torch")  # not imported here, because `collm --help` needs no torch
    if torch is not None and isinstance(error, torch.OutOfMemoryError):
        cause = str(error).split(" GPU ")[0]  # the rest is a paragraph about the allocator
        return f"{cause} Lower --max-batch-tokens, --num-envs or --kv-memory, or use --offload moments"
    if isinstance(error, MemoryError) or "can't allocate memory" in str(error):  # RuntimeError of torch
        return f"the memory of this machine is not sufficient; lower the sizes ({str(error).rpartition('you ')[2]})"
    return None


def check_folder(folder: Path, option: str) -> None:
    """Check that a folder can be created and written to."""
    place = folder.absolute()
    while not os.path.lexists(place):
        place = place.parent
    if not place.is_dir():
        raise UserError(f"{option} {folder}: {place} is a file, not a folder; give another {option}")
    if not os.access(place, os.W_OK | os.X_OK):
        raise UserError(f"{option} {folder}: {place} is not writable; give another {option}")
