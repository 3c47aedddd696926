"""Ownership of files: collm overwrites and deletes only files that it wrote.

The file `.collm` in each folder lists these files: first the format, then one relative path per line. A run's folder
that was copied without this hidden file is recognized by its config.json, and collm owns all files in it.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ._errors import UserError

MARKER = ".collm"
TEMPORARY = ".collm-"  # Name prefix of temporary files and folders, which are renamed after they are written
RUN_FILE = "config.json"
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # error numbers of a full disk
_FORMAT = "collm files, format 1"


class ForeignFileError(UserError, FileExistsError):
    """Error raised if a file or folder would be overwritten that collm did not write."""


def written(folder: Path) -> set[str]:
    """Return the paths of the files that collm wrote in a folder, relative to the folder."""
    lines = _lines(folder / MARKER)
    if lines is None and _is_run_file(folder / RUN_FILE):
        files = (path for path in (*folder.glob("*"), *folder.glob("*/*")) if path.is_file() or path.is_symlink())
        lines = [name for path in files if "\n" not in (name := str(path.relative_to(folder)))]
    return set(lines or ())


def holds_run(folder: Path) -> bool:
    """Return True for the folder of a training run, even if the run failed before it wrote its settings."""
    return RUN_FILE in written(folder)


def refuse_foreign_folder(folder: Path) -> None:
    """Raise `ForeignFileError` if a folder has files but contains no training run of collm."""
    found = sorted(name for name in os.listdir(folder) if not name.startswith(MARKER)) if folder.is_dir() else []
    if found and not holds_run(folder):
        raise ForeignFileError(f"{folder} contains {found[0]} but no run of collm; give a new or an empty folder")


def refuse_full_folder(folder: Path) -> None:
    """Raise `ForeignFileError` if a path exists and is not an empty folder, or is inside the folder of a run.

    Files of a killed command do not count.
    """
    if os.path.lexists(folder) and not (folder.is_dir() and set(os.listdir(folder)) <= {_inside(folder).name}):
        raise ForeignFileError(f"{folder} exists and is not an empty folder; give a new or empty folder")
    if run := next((parent for parent in folder.absolute().parents if holds_run(parent)), None):
        raise ForeignFileError(f"{folder} is inside the run {run}, which it would change; give a folder outside of it")


def refuse_foreign_files(folder: Path, names: Iterable[str]) -> None:
    """Raise `ForeignFileError` if a file exists that collm did not write, or if its path contains a symbolic link."""
    known = written(folder)
    for name in names:
        path = folder / name
        linked = [folder / each for each in Path(name).parents if each != Path() and (folder / each).is_symlink()]
        if linked:
            raise ForeignFileError(f"{linked[0]} is a symbolic link, which collm does not follow; make it a folder")
        is_folder = path.is_dir() and not path.is_symlink()
        if is_folder or (os.path.lexists(path) and name not in known):
            raise ForeignFileError(f"{path} exists, but collm did not write it; move it, or give another folder")


def note(folder: Path, names: Iterable[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    known = written(folder)
    marker = folder / MARKER
    lines = [name for name in names if name not in known]
    with os.fdopen(open_marker(folder), "ab") as file:
        if _lines(marker) is None:
            file.truncate(0)
            lines = [_FORMAT, *sorted(known), *lines]
        elif not marker.read_bytes().endswith(b"\n"):  # the disk was full during an earlier write
            lines = ["", *lines]
        file.write(b"".join(os.fsencode(line) + b"\n" for line in lines))


def open_marker(folder: Path) -> int:
    return os.open(folder / MARKER, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)


@contextmanager
def owned(folder: Path, name: str) -> Iterator[Path]:
    """Yield a temporary path whose file replaces the file `name` atomically, and add `name` to `.collm`.

    Raises `ForeignFileError` if the file exists and collm did not write it.
    """
    refuse_foreign_files(folder, [name])
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    with replaced(folder / name) as new:
        yield new
        note(folder, [name])


def write_text(folder: Path, name: str, text: str) -> None:
    """Write a text file atomically and add it to `.collm`. Characters that UTF-8 cannot encode are escaped."""
    with owned(folder, name) as new:
        new.write_text(text, encoding="utf-8", errors="backslashreplace")


@contextmanager
def replaced(path: Path) -> Iterator[Path]:
    """Yield a temporary path whose file replaces `path` atomically at the end. Symbolic links are not followed."""
    new = temporary(path)
    new.unlink(missing_ok=True)  # left by a process that was killed
    os.close(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666))
    try:
        yield new
        sync(new)
        os.replace(new, path)
    except OSError as error:
        if error.errno in FULL and error.filename is None:  # errors of a file object do not name the file
            error.filename = str(path)
        raise
    finally:
        new.unlink(missing_ok=True)
    sync(path.parent)


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder, whose content becomes the content of `folder` at the end.

    Raises `ForeignFileError` if the folder exists and is not empty.
    """
    refuse_full_folder(folder)
    is_moved_up = folder.is_dir()  # it may be a mount point, which cannot be replaced
    with staged(_inside(folder) if is_moved_up else temporary(Path(os.path.abspath(folder)))) as new:
        yield new
    if not is_moved_up:
        return os.rename(new, folder)
    for path in list(new.iterdir()):
        os.rename(path, folder / path.name)
    new.rmdir()


def _inside(folder: Path) -> Path:
    return temporary(folder / "folder")


@contextmanager
def staged(new: Path) -> Iterator[Path]:
    """Make an empty folder at a temporary path. At the end its files are on the disk; after errors it is deleted."""
    if new.exists():
        shutil.rmtree(new)  # left by a process that was killed
    new.mkdir(parents=True)
    try:
        yield new
        for path in [new, *new.rglob("*")]:
            sync(path)
    except BaseException:
        shutil.rmtree(new)
        raise


def temporary(path: Path, what: str = "new") -> Path:
    """Return the path of a temporary file in the same folder, with a name that only collm uses."""
    return path.with_name(f"{TEMPORARY}{what}-{path.name}")


def sync(path: Path) -> None:
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def is_private(path: Path) -> bool:
    """Return True if the path exists, is not a link, belongs to this user, and only this user can write to it."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return False
    is_writable = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return not stat.S_ISLNK(found.st_mode) and found.st_uid == os.geteuid() and not is_writable


def _is_run_file(file: Path) -> bool:
    try:
        content = json.loads(file.read_bytes()) if file.is_file() else None
    except (ValueError, RecursionError):  # not a file of collm
        return False
    return isinstance(content, dict) and {"algorithm", "env", "config"} <= content.keys()


def _lines(marker: Path) -> list[str] | None:
    """Return the paths in a `.collm` file; None if it is missing or its first line is incomplete."""
    if not os.path.lexists(marker):
        return None
    if marker.is_symlink() or not marker.is_file():
        raise ForeignFileError(f"{marker} is not a regular file; give another folder")
    first, end, rest = os.fsdecode(marker.read_bytes()).partition("\n")
    if not end and _FORMAT.startswith(first):
        return None
    if first != _FORMAT:
        raise ForeignFileError(f"{marker} starts with {first[:40]!r}, not {_FORMAT!r}; give another folder")
    return rest.split("\n")[:-1]
