"""Runs that this user trained on this machine. Their settings need no `--trust`; see `assembly/trust.py`.

The file `collm/runs` in the user's state folder (`XDG_STATE_HOME`) has one line per run: a digest of the settings file
and of its identity in the file system. A moved folder is still an own run. A copy is not, because equal settings say
nothing about models and records beside them, which somebody else may have replaced.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path

from ..._ownership import is_private


def note_own_run(file: Path) -> None:
    """Add a run's settings file to the own runs. Without a writable state folder, commands will ask for `--trust`."""
    with suppress(OSError, RuntimeError):  # RuntimeError: the user has no home folder
        state = _state_file()
        state.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        number = os.open(state, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(number, "ab", buffering=0) as stream:
            stream.write(f"\n{_digest(file)}\n".encode())  # in one call; the first line break ends an incomplete line


def is_own_run(file: Path) -> bool:
    """Return True if `note_own_run` was called with the settings file of a run, and the file was not changed since."""
    try:
        return is_private(state := _state_file()) and _digest(file) in state.read_text("utf-8").splitlines()
    except (OSError, RuntimeError):
        return False


def _digest(file: Path) -> str:
    # The inode of a deleted file is used again, so the time of its last change is needed too. Nobody can set this time.
    status = file.lstat()
    content = b"" if file.is_symlink() else file.read_bytes()
    return hashlib.sha256(f"{status.st_ino} {status.st_ctime_ns}\n".encode() + content).hexdigest()


def _state_file() -> Path:
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "collm" / "runs"
