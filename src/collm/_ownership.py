"""Ownership of files: collm overwrites and deletes only files that it wrote, which `.collm` lists in each folder.

The first line of `.collm` is the format. Each further line is the path of a file that collm wrote, relative to the
folder. A folder whose list has `config.json` is the folder of a training run.

Folders of earlier versions have no list. They are recognised by the content of a file, such as the settings of a run
(`config.json`), and all files in them count as written by collm.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ._errors import UserError

MARKER = ".collm"
TEMPORARY = ".collm-"
"""Prefix of the names of files and folders that are being written."""
RUN_FILE = "config.json"
_FORMAT = "collm files, format 1"
_OLDER_RUNS = {RUN_FILE: {"algorithm", "env", "config"}, "benchmark.json": {"algorithm", "environment", "seed"}}
_OLDER = {
    **_OLDER_RUNS,
    "summaries.jsonl": {"algorithm", "experiment", "curves"},
    "leaderboard.json": {"env", "split", "entries"},
    "machine.json": {"device", "is_tiny"},
}
"""Files by which a folder of an earlier version is recognised, and keys of the JSON object in each."""


class ForeignFileError(UserError, FileExistsError):
    """A file or folder is in the way, and collm did not write it."""


def written(folder: Path) -> set[str]:
    """Paths of the files in a folder that collm wrote, relative to the folder.

    Raises:
        ForeignFileError: if `.collm` is not a list of collm's.
    """
    lines = _lines(folder / MARKER)
    if lines is None:
        return _files_in(folder) if _is_older(folder) else set()
    return set(lines)


def holds_run(folder: Path) -> bool:
    """Whether a folder is that of a training run, which may not have come to its settings."""
    return RUN_FILE in written(folder) or any(has_keys(folder / name, keys) for name, keys in _OLDER_RUNS.items())


def refuse_foreign_folder(folder: Path) -> None:
    """Refuse a folder for a run if it has files and holds no run.

    Raises:
        ForeignFileError: naming one of the files.
    """
    found = sorted(name for name in os.listdir(folder) if not name.startswith(MARKER)) if folder.is_dir() else []
    if found and not holds_run(folder):
        raise ForeignFileError(
            f"{folder} is not empty and holds no run of collm: it has {found[0]}; give a new or an empty folder"
        )


def refuse_foreign_files(folder: Path, names: Iterable[str]) -> None:
    """Refuse to write files in place of others that collm did not write, or through a link to another folder.

    Args:
        names: paths of the files, relative to the folder.

    Raises:
        ForeignFileError: naming the file that is in the way.
    """
    known = written(folder)
    for name in names:
        path = folder / name
        linked = [folder / each for each in Path(name).parents if each != Path() and (folder / each).is_symlink()]
        if linked:
            raise ForeignFileError(
                f"{linked[0]} is a symbolic link, through which collm does not write; replace it by a folder"
            )
        is_folder = path.is_dir() and not path.is_symlink()
        if is_folder or (os.path.lexists(path) and name not in known):
            raise ForeignFileError(f"{path} is in the way, and collm did not write it; move it, or give another folder")


def note(folder: Path, names: Iterable[str]) -> None:
    """Add files to the list of those that collm wrote."""
    folder.mkdir(parents=True, exist_ok=True)
    known = written(folder)
    marker = folder / MARKER
    lines = [name for name in names if name not in known]
    with os.fdopen(open_marker(folder), "ab") as file:
        if _lines(marker) is None:
            file.truncate(0)
            lines = [_FORMAT, *sorted(known), *lines]
        elif not marker.read_bytes().endswith(b"\n"):  # the disk was full
            lines = ["", *lines]
        file.write(b"".join(os.fsencode(line) + b"\n" for line in lines))


def open_marker(folder: Path) -> int:
    """Descriptor of a folder's `.collm`, to append to; the file is made if it is missing."""
    return os.open(folder / MARKER, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)


@contextmanager
def owned(folder: Path, name: str) -> Iterator[Path]:
    """Write a file whole or not at all, and list it as collm's.

    Args:
        folder: folder of the file, made if it is missing.
        name: path of the file, relative to the folder.

    Yields:
        Path of an empty file to write to, with the same suffix.

    Raises:
        ForeignFileError: if another file is in the way.
    """
    refuse_foreign_files(folder, [name])
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    with replaced(folder / name) as new:
        yield new
        note(folder, [name])


def write_text(folder: Path, name: str, text: str) -> None:
    """Write a text file by `owned`; characters that UTF-8 does not have are written as escapes."""
    with owned(folder, name) as new:
        new.write_text(text, encoding="utf-8", errors="backslashreplace")


@contextmanager
def replaced(path: Path) -> Iterator[Path]:
    """Replace a file whole or not at all, whenever the process or the machine stops; a link is not followed.

    Yields:
        Path of an empty file to write to, with the same suffix.
    """
    new = temporary(path)
    new.unlink(missing_ok=True)  # left by a process that was killed
    os.close(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666))
    try:
        yield new
        sync(new)
        os.replace(new, path)
    finally:
        new.unlink(missing_ok=True)
    sync(path.parent)


def temporary(path: Path, what: str = "new") -> Path:
    """Path beside another one under a name that only collm uses."""
    return path.with_name(f"{TEMPORARY}{what}-{path.name}")


def sync(path: Path) -> None:
    """Wait until a file, or a folder's list of names, is on the disk."""
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def _lines(marker: Path) -> list[str] | None:
    """Paths in a `.collm`; None if there is no such file, or a process was killed before it wrote the first line."""
    if not os.path.lexists(marker):
        return None
    if marker.is_symlink() or not marker.is_file():
        raise ForeignFileError(f"{marker} is no file that collm wrote; give another folder")
    first, end, rest = os.fsdecode(marker.read_bytes()).partition("\n")
    if not end and _FORMAT.startswith(first):
        return None
    if first != _FORMAT:
        raise ForeignFileError(f"{marker} begins with {first[:40]!r}, not {_FORMAT!r}; give another folder")
    return rest.split("\n")[:-1]


def _is_older(folder: Path) -> bool:
    """Whether a version of collm that kept no list wrote the folder."""
    return any(has_keys(folder / name, keys) for name, keys in _OLDER.items())


def has_keys(file: Path, keys: set[str]) -> bool:
    """Whether a file is a JSON object with these keys, or has one in its first line."""
    if not file.is_file():
        return False
    with file.open("rb") as stream:
        content = stream.readline() if file.suffix == ".jsonl" else stream.read()
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):  # the file of somebody else
        return False
    return isinstance(found, dict) and keys <= found.keys()


def _files_in(folder: Path) -> set[str]:
    """Files in a folder and in the folders in it."""
    found = [path for path in (*folder.glob("*"), *folder.glob("*/*")) if path.is_file() or path.is_symlink()]
    return {name for path in found if "\n" not in (name := str(path.relative_to(folder)))}
