"""Files of a run: settings, JSON lines, atomic writes and the folder lock. This module does not import torch."""

from __future__ import annotations

import errno
import fcntl
import json
import math
import os
import re
import shlex
import shutil
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from ..._errors import UserError
from ..._json import parse_json, read_json, refuse_device
from ..._ownership import (
    FULL,
    MARKER,
    RUN_FILE,
    holds_run,
    note,
    open_marker,
    refuse_foreign_folder,
    replaced,
    staged,
    sync,
    temporary,
)

CONFIG_FILE = RUN_FILE
TEAM_FILE = "collm_team.json"  # settings of a team that `collm export` wrote, which has no folder `agents`
_HELD: set[tuple[Path, int]] = set()  # locks of this process: folder and thread
_REFUSED = (errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO)


class RunFolderError(UserError, OSError):
    """Error for a run's folder that is in use or cannot be written."""


class DamagedRunError(UserError):
    """Error for a damaged file in a run's folder. The message contains the path of the file."""


def write_file(path: Path, text: str) -> None:
    """Write a text file atomically."""
    with replaced(path) as new:
        new.write_text(text, encoding="utf-8")


def write_config(directory: Path, config: Mapping[str, Any]) -> None:
    write_file(directory / CONFIG_FILE, json.dumps(config, indent=2, ensure_ascii=False) + "\n")


def read_config(directory: Path) -> dict[str, Any]:
    """Read the settings of a run. Raises `FileNotFoundError` if there is no run, `UserError` if the file is damaged."""
    file = settings_file(directory)
    if not file.is_file():
        if holds_run(directory):
            raise FileNotFoundError(
                f"{directory} contains a run that stopped before it wrote {CONFIG_FILE}; start it again: collm train"
            )
        raise FileNotFoundError(f"{directory} contains no run: {CONFIG_FILE} is missing; give the folder of a run")
    found = read_json(file)
    if "model_type" in found:
        raise UserError(
            f"{directory} is a model folder, not a run; to evaluate the model: collm evaluate --model "
            f"{shlex.quote(str(directory))} --env ID"
        )
    return found


def settings_file(directory: Path) -> Path:
    """Return the file with the settings of a run, or of a team that was exported from a run."""
    team = directory / TEAM_FILE
    return team if team.is_file() and not (directory / CONFIG_FILE).exists() else directory / CONFIG_FILE


def agents_folder(directory: Path) -> Path:
    """Return the folder with a subfolder per agent of a run, or of a team that was exported from a run."""
    return directory / "agents" if settings_file(directory).name == CONFIG_FILE else directory


def write_folder(path: Path, fill: Callable[[Path], None]) -> None:
    """Write a folder atomically with `fill`. Files that only the old folder has are kept for the user."""
    new, old = temporary(path), temporary(path, "old")
    _finish_replacing(path, old)
    with staged(new):
        fill(new)
    if path.exists():
        os.rename(path, old)
    os.rename(new, path)
    sync(path.parent)
    _finish_replacing(path, old)


def _finish_replacing(path: Path, old: Path) -> None:
    """Delete the old folder, or restore it if the process was killed before the new folder was in place."""
    if not old.exists():
        return
    if not path.exists():
        os.rename(old, path)
        return
    for folder, _, names in os.walk(old):
        for name in names:
            kept = path / Path(folder, name).relative_to(old)
            if not os.path.lexists(kept):
                kept.parent.mkdir(parents=True, exist_ok=True)
                os.rename(Path(folder, name), kept)
    shutil.rmtree(old)


@contextmanager
def only_one(directory: Path, *, waits: bool = False) -> Iterator[None]:
    """Lock a run's folder against other processes until the block ends, with a `flock` on the folder's `.collm`.

    A nested block of the same thread has no effect. A missing folder is created, and deleted again if the block writes
    nothing. If another process has the lock, `waits=True` waits and `waits=False` raises `RunFolderError`. Raises
    `ForeignFileError` if the folder contains files but no run.
    """
    key = (directory.resolve(), threading.get_ident())
    if key in _HELD:
        yield
        return
    with tentative(directory), _locked(directory, waits):
        _HELD.add(key)
        try:
            yield
        finally:
            _HELD.remove(key)
            if os.listdir(directory) == [MARKER]:
                (directory / MARKER).unlink()


@contextmanager
def tentative(directory: Path) -> Iterator[None]:
    """Context manager: at the end, remove the folder and parents that were created in the block and are empty."""
    missing = [path for path in (directory, *directory.parents) if not path.exists()]
    try:
        yield
    finally:
        with suppress(OSError):  # the folder is not empty, or was not created
            for path in missing:
                path.rmdir()


@contextmanager
def _locked(directory: Path, waits: bool) -> Iterator[None]:
    while True:
        directory.mkdir(parents=True, exist_ok=True)
        refuse_foreign_folder(directory)
        try:
            file = os.fdopen(open_marker(directory), "ab")
        except FileNotFoundError:  # another process has just removed the folder
            continue
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))
            except BlockingIOError as error:
                raise RunFolderError(
                    f"{directory} is in use: another process trains there; wait for it to end"
                ) from error
            marker = directory / MARKER
            # The process that had the lock before may have removed the file.
            if marker.exists() and os.path.samestat(marker.stat(), os.fstat(file.fileno())):
                note(directory, [CONFIG_FILE])
                yield
                return


@contextmanager
def explained(
    directory: Path, advice: Callable[[], str] = lambda: "correct this, then repeat the command"
) -> Iterator[None]:
    """Context manager: convert write errors into a `RunFolderError`. `advice` returns the end of the message."""
    try:
        yield
    except RunFolderError:
        raise
    except (OSError, SafetensorError) as error:
        cause = _cause(error, directory)
        if cause is None:
            raise
        raise RunFolderError(f"{directory} cannot be written: {cause}; {advice()}") from error


def _cause(error: OSError | SafetensorError, directory: Path) -> str | None:
    """Return the text of a write error in the directory. None: the error has another cause."""
    number, file = error.errno if isinstance(error, OSError) else None, getattr(error, "filename", None)
    if number is None and (found := re.search(r"(?:os error |\[Errno )(\d+)", str(error))):
        number = int(found[1])  # SafetensorError and shutil.Error have no error number
    if number in FULL:
        return os.strerror(number)
    if number not in _REFUSED:
        return None
    is_inside = file is None or directory.resolve() in Path(os.fsdecode(file)).resolve().parents
    return os.strerror(number) if is_inside else None


class JsonLines:
    """Writer that appends objects to a JSON-lines file, which has `num_lines` lines. NaN and infinity become null."""

    def __init__(self, path: Path, num_lines: int = 0):
        self.path = path
        self.num_lines = num_lines

    def write(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Append all rows in one system call, so that a killed run leaves only complete lines."""
        lines = [json.dumps(_finite(row), ensure_ascii=False) + "\n" for row in rows]
        number = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        with os.fdopen(number, "a", encoding="utf-8", errors="backslashreplace", newline="") as file:
            file.write("".join(lines))
        self.num_lines += len(lines)


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Read a JSON-lines file. Warns about an incomplete last line. Raises `UserError` if a line is no JSON object."""
    rows, num_bytes = [], 0
    for row, end in each_line(path):
        rows.append(row)
        num_bytes = end
    if num_bytes < path.stat().st_size:
        warnings.warn(f"{path}: incomplete last line {len(rows) + 1} skipped", UserWarning, stacklevel=2)
    return rows


def each_line(path: Path) -> Iterator[tuple[dict[str, Any], int]]:
    """Iterate over the rows of a JSON-lines file, and the byte offset of the end of each row."""
    end = 0
    refuse_device(path)
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):  # bytes, because U+2028 in texts does not end a line
            if not line.endswith(b"\n"):
                return
            end += len(line)
            yield parse_json(line.rstrip(b"\n"), path, number), end


def cut_lines(path: Path, update: int, num_lines: int) -> int:
    """Delete rows after row `num_lines`, and rows of updates after `update`. Returns the number of kept rows."""
    if not path.exists():
        return 0
    kept = end = 0
    for row, line_end in islice(each_line(path), num_lines):
        number = row.get("update")
        if not isinstance(number, int):
            raise DamagedRunError(f"{path}, line {kept + 1}, has no update number; delete or repair the line")
        if number > update:
            break
        kept, end = kept + 1, line_end
    os.truncate(path, end)
    return kept


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, (list, tuple)) else value
