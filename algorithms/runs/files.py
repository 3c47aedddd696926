"""Files of a run: settings, JSON lines, atomic writes, and the lock of its folder; needs no torch."""

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
    MARKER,
    RUN_FILE,
    holds_run,
    note,
    open_marker,
    refuse_foreign_folder,
    replaced,
    sync,
    temporary,
)

CONFIG_FILE = RUN_FILE
_HELD: set[tuple[Path, int]] = set()  # locks of this process, by folder and thread
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_REFUSED = (errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO)


class RunFolderError(UserError, OSError):
    """A run's folder cannot be written, or is in use; the message is for its owner, in one line."""


class DamagedRunError(UserError):
    """A run's folder holds what no run writes; the message names the file, in one line."""


def write_file(path: Path, text: str) -> None:
    """Write a file of a run whole or not at all, whenever the process or the machine stops."""
    with replaced(path) as new:
        new.write_text(text, encoding="utf-8")


def write_config(directory: Path, config: Mapping[str, Any]) -> None:
    """Write the experiment's settings, whole or not at all."""
    write_file(directory / CONFIG_FILE, json.dumps(config, indent=2, ensure_ascii=False) + "\n")


def read_config(directory: Path) -> dict[str, Any]:
    """Read the experiment's settings.

    Raises:
        FileNotFoundError: if the folder holds no run.
        UserError: if the file is damaged, or that of a model.
    """
    file = directory / CONFIG_FILE
    if not file.is_file():
        if holds_run(directory):
            raise FileNotFoundError(
                f"{directory} holds a run that was stopped before it wrote {CONFIG_FILE}; start it again: collm train"
            )
        raise FileNotFoundError(f"{directory} holds no run: {CONFIG_FILE} is missing; give the --out of `collm train`")
    found = read_json(file)
    if "model_type" in found:
        raise UserError(
            f"{directory} holds a model and no run; to let it play: collm evaluate --model "
            f"{shlex.quote(str(directory))} --env ID"
        )
    return found


def write_folder(path: Path, fill: Callable[[Path], None]) -> None:
    """Write a folder of a run whole or not at all.

    A folder of the same name is replaced. Files in it that the new folder lacks are kept: they are somebody else's.

    Args:
        fill: writes the content into the folder that it is given.
    """
    new, old = temporary(path), temporary(path, "old")
    _finish_replacing(path, old)
    if new.exists():
        shutil.rmtree(new)
    new.mkdir(parents=True)
    fill(new)
    for folder, _, names in os.walk(new):
        for name in names:
            sync(Path(folder, name))
        sync(Path(folder))
    if path.exists():
        os.rename(path, old)
    os.rename(new, path)
    sync(path.parent)
    _finish_replacing(path, old)


def _finish_replacing(path: Path, old: Path) -> None:
    """Delete the folder that was replaced, or put it back if the process was killed before there was a new one."""
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
    """Keep other processes out of a run's folder; the lock ends with the process, however that ends.

    Args:
        directory: folder of a run, made if it is missing, and deleted after a block that writes nothing into it. A
            block within another one of this thread changes nothing. The lock is held on the folder's `.collm`, so that
            this list of files is the first thing in a new folder.
        waits: wait for the other process to end.

    Raises:
        RunFolderError: if another process is at work there.
        ForeignFileError: if the folder is not empty and holds no run.
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
    """Remove a folder that the block made, and the folders made to hold it, unless something is in them at the end."""
    missing = [path for path in (directory, *directory.parents) if not path.exists()]
    try:
        yield
    finally:
        with suppress(OSError):  # the first that is not empty, or was not made
            for path in missing:
                path.rmdir()


@contextmanager
def _locked(directory: Path, waits: bool) -> Iterator[None]:
    while True:
        directory.mkdir(parents=True, exist_ok=True)
        refuse_foreign_folder(directory)
        try:
            file = os.fdopen(open_marker(directory), "ab")
        except FileNotFoundError:  # who held it has just removed the folder
            continue
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))
            except BlockingIOError as error:
                raise RunFolderError(
                    f"{directory} is in use: another process trains there; wait for it to end"
                ) from error
            if _is_there(directory / MARKER, file.fileno()):
                note(directory, [CONFIG_FILE])
                yield
                return


def _is_there(path: Path, number: int) -> bool:
    """Whether an open file is the one at a path: who held its lock before may have removed it."""
    return path.exists() and os.path.samestat(path.stat(), os.fstat(number))


@contextmanager
def explained(directory: Path, advice: Callable[[], str]) -> Iterator[None]:
    """Say in one line that a run's folder cannot be written.

    Args:
        directory: folder of the run; errors with other files pass through.
        advice: what is left, and what to do.

    Raises:
        RunFolderError: in place of an error of the file system.
    """
    try:
        yield
    except RunFolderError:
        raise
    except (OSError, SafetensorError) as error:
        cause = _cause(error, directory)
        if cause is None:
            raise
        raise RunFolderError(f"nothing more can be written to {directory}: {cause}; {advice()}") from error


def _cause(error: OSError | SafetensorError, directory: Path) -> str | None:
    """What the file system refused; None if it was asked for something else."""
    number, file = error.errno if isinstance(error, OSError) else None, getattr(error, "filename", None)
    if isinstance(error, SafetensorError) and (found := re.search(r"os error (\d+)", str(error))):
        number = int(found[1])  # which safetensors has no field for
    if number in _FULL:
        return os.strerror(number)
    if number not in _REFUSED:
        return None
    is_inside = file is None or directory.resolve() in Path(os.fsdecode(file)).resolve().parents
    return os.strerror(number) if is_inside else None


class JsonLines:
    """Appends one JSON object per line; numbers that are not finite become null.

    Args:
        path: path of the file, which the first line creates.
        num_lines: lines that the file holds already.
    """

    def __init__(self, path: Path, num_lines: int = 0):
        self.path = path
        self.num_lines = num_lines

    def write(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Append all rows in one write, so that a killed run leaves whole lines."""
        lines = [json.dumps(_finite(row), ensure_ascii=False) + "\n" for row in rows]
        number = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        with os.fdopen(number, "a", encoding="utf-8", errors="backslashreplace", newline="") as file:
            file.write("".join(lines))
        self.num_lines += len(lines)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self.write([{"update": step, **metrics}])

    def close(self) -> None:
        """Nothing is buffered."""


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The rows of a JSON-lines file; a last line that was cut off, as by a crash, is left out with a warning.

    Raises:
        UserError: if a line is no JSON object; names the file and the line.
    """
    rows, num_bytes = [], 0
    for row, end in each_line(path):
        rows.append(row)
        num_bytes = end
    if num_bytes < path.stat().st_size:
        warnings.warn(f"{path}: its last line, {len(rows) + 1}, is cut off and left out", UserWarning, stacklevel=2)
    return rows


def each_line(path: Path) -> Iterator[tuple[dict[str, Any], int]]:
    """One row of a JSON-lines file after the other, with the number of bytes up to its end; never the whole file.

    A line ends at a line feed and nowhere else: texts hold other separators, such as U+2028, as they are.

    Raises:
        UserError: if a line is no JSON object; names the file and the line.
    """
    end = 0
    refuse_device(path)
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                return
            end += len(line)
            yield parse_json(line.rstrip(b"\n"), path, number), end


def cut_lines(path: Path, update: int, num_lines: int) -> int:
    """Cut the rows after an update off, which a resumed run writes again; returns how many are left.

    Args:
        update: last update to keep.
        num_lines: rows up to that update, as the run has counted them; what comes after them is not read.

    Raises:
        UserError: if a row among them is damaged; names the file and the line.
    """
    if not path.exists():
        return 0
    kept = end = 0
    for row, line_end in islice(each_line(path), num_lines):
        number = row.get("update")
        if not isinstance(number, int):
            raise _damaged(path, kept + 1, "it names no update")
        if number > update:
            break
        kept, end = kept + 1, line_end
    os.truncate(path, end)
    return kept


def _damaged(path: Path, number: int, fault: str) -> DamagedRunError:
    return DamagedRunError(f"{path}, line {number}, is damaged: {fault}; delete or mend the line")


def _finite(value: Any) -> Any:
    """The value with null in place of nan and infinity, which JSON does not have."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, (list, tuple)) else value
