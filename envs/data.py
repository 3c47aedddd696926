"""Tasks of an environment: rows of a sample in the package, of a local file, or of a data set on the hub."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, overload

from .files import NumberedRow, Row, has_splits, is_data_path, numbered_rows
from .spaces import is_unicode_text

BUILTIN = "builtin"
_ID = "id"


class Tasks(Sequence[Mapping[str, Any]]):
    """Rows that an episode can be dealt from, each with an "id"; read-only, so that copies share them.

    Args:
        rows: the tasks, each with a text "id" that no other has.
        source: where they are from, for messages.
    """

    def __init__(self, rows: Sequence[Mapping[str, Any]], source: str):
        self.source = source
        self._rows = tuple(rows)
        self._position = {str(row[_ID]): i for i, row in enumerate(self._rows)}

    @overload
    def __getitem__(self, index: int) -> Mapping[str, Any]: ...
    @overload
    def __getitem__(self, index: slice) -> Tasks: ...
    def __getitem__(self, index: int | slice) -> Mapping[str, Any] | Tasks:
        return Tasks(self._rows[index], self.source) if isinstance(index, slice) else self._rows[index]

    def __len__(self) -> int:
        return len(self._rows)

    def __deepcopy__(self, memo: Any) -> Tasks:
        return self

    def __repr__(self) -> str:
        return f"Tasks({len(self)} of {self.source})"

    def task(self, which: int | str) -> Mapping[str, Any]:
        """The task at an index or with an id.

        Raises:
            ValueError: if there is none.
        """
        if isinstance(which, str) and which in self._position:
            return self._rows[self._position[which]]
        if isinstance(which, int) and not isinstance(which, bool) and 0 <= which < len(self):
            return self._rows[which]
        raise ValueError(
            f"there is no task {which!r} in {self.source}; give an index 0..{len(self) - 1} or an id such as "
            f"{self._rows[0][_ID]!r}"
        )


def load_tasks(
    data: str | Mapping[str, str],
    split: str = "train",
    *,
    text_fields: Sequence[str],
    other_fields: Sequence[str] = (),
    builtin: Path | str | None = None,
    columns: Mapping[str, str] | None = None,
    test_fraction: float | None = None,
) -> Tasks:
    """All rows of one split, with the fields that the environment needs; none is dropped.

    A text field may hold a list of sentences: they are joined by single spaces. Columns that nobody asked for are
    kept as they are. A row's "id" is that of its column "id", or else "<split>-<row number>".

    Args:
        data: "builtin"; the path of a .jsonl, .json, .csv (these also as .gz) or .parquet file or of a directory
            written by `datasets`' `save_to_disk`, where "{split}" in the path stands for the split's name; or the
            name of a data set on the Hugging Face hub, "owner/name", optionally with the hub's own name or slice of a
            split, "owner/name:train[:1000]". A mapping gives one of these for each split.
        split: "train", "test", or another that the data has.
        text_fields: fields that must hold text.
        other_fields: fields that must be there and not be empty, of any type.
        builtin: the path of the sample in the package, with "{split}" in it.
        columns: the data's name for a field where it differs: {"post": "source"}.
        test_fraction: share of rows that make up "test", the others "train", for one file without splits. A row's
            place follows from a hash of its text fields, so it stays when rows are added, and twins stay together.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if a row lacks a field or has it empty (with file, row and column), if two rows have one id, if
            the data has no such split, or if there are no rows.
        ConnectionError: if the hub cannot be read.
    """
    text, other = tuple(text_fields), tuple(other_fields)
    renamed = dict(columns or {})
    unknown = set(renamed) - {*text, *other, _ID}
    if unknown:
        raise ValueError(f"columns renames unknown fields {sorted(unknown)}; the fields are {[*text, *other, _ID]}")
    if test_fraction is not None and not 0 < test_fraction < 1:
        raise ValueError(f"test_fraction must lie between 0 and 1, got {test_fraction}")
    source = _source(data, split, builtin, test_fraction)
    return _load(
        _Request(
            source,
            _stamp(source),
            split,
            text_fields=tuple((name, renamed.get(name, name)) for name in text),
            other_fields=tuple((name, renamed.get(name, name)) for name in other),
            id_column=renamed.get(_ID, _ID),
            is_id_required=_ID in renamed,
            test_fraction=test_fraction,
        )
    )


@dataclass(frozen=True)
class _Request:
    """What rows to load; equal requests give the same object, because many copies of an environment ask for it."""

    source: str
    stamp: tuple[int, int] | None  # changes when the file does
    split: str
    text_fields: tuple[tuple[str, str], ...]  # field, column
    other_fields: tuple[tuple[str, str], ...]
    id_column: str
    is_id_required: bool
    test_fraction: float | None


def _source(data: str | Mapping[str, str], split: str, builtin: Path | str | None, test_fraction: float | None) -> str:
    """The file or hub name that holds the split."""
    if isinstance(data, Mapping) and split not in data:
        raise ValueError(f"data has no split {split!r}; it gives {', '.join(map(repr, data)) or 'none'}")
    chosen = str(data[split]) if isinstance(data, Mapping) else str(data)
    if chosen == BUILTIN:
        if builtin is None or split not in ("train", "test"):
            raise ValueError(f"there is no built-in data for the split {split!r}; give a file or a hub name")
        chosen = str(builtin)
    is_path = is_data_path(chosen)
    is_split = isinstance(data, Mapping) or "{split}" in chosen or has_splits(Path(chosen).expanduser())
    if is_split and test_fraction is not None:
        raise ValueError(f"test_fraction divides rows without splits, but {data!r} has them; leave one of the two out")
    if is_path and not is_split and split != "train" and test_fraction is None:
        raise ValueError(
            f"{chosen} does not say which of its rows are {split!r}; give data={{'train': …, {split!r}: …}}, "
            "a path with '{split}' in it, or test_fraction"
        )
    return str(Path(chosen.replace("{split}", split)).expanduser()) if is_path else chosen


def _stamp(source: str) -> tuple[int, int] | None:
    if not os.path.isfile(source):
        return None
    state = os.stat(source)
    return state.st_mtime_ns, state.st_size


@lru_cache(maxsize=16)
def _load(request: _Request) -> Tasks:
    source, split = request.source, request.split
    whole = split if request.test_fraction is None else "train"
    rows = numbered_rows(Path(source), whole) if is_data_path(source) else _hub_rows(source, whole)
    tasks: list[dict[str, Any]] = []
    numbers: dict[str, int] = {}
    for number, row in rows:
        task = _task(row, number, request)
        if request.test_fraction is not None:
            texts = [task[name] for name, _ in request.text_fields]
            if split != _split_of(texts, request.test_fraction):
                continue
        if task[_ID] in numbers:
            raise ValueError(f"{source}, rows {numbers[task[_ID]]} and {number} have the same id {task[_ID]!r}")
        numbers[task[_ID]] = number
        tasks.append(task)
    if not tasks:
        raise ValueError(f"{source} has no rows for the split {split!r}")
    return Tasks(tasks, f"{source} ({split})")


def _task(row: Row, number: int, request: _Request) -> dict[str, Any]:
    place = f"{request.source}, row {number}"
    task = dict(row)
    for name, column in request.text_fields:
        task[name] = _text(_value(row, column, place), column, place)
    for name, column in request.other_fields:
        task[name] = _value(row, column, place)
    if request.is_id_required or request.id_column in row:
        task[_ID] = str(_value(row, request.id_column, place))
    else:
        task[_ID] = f"{request.split}-{number}"
    return task


def _value(row: Row, column: str, place: str) -> Any:
    if column not in row:
        raise ValueError(f"{place} has no column {column!r}, only {sorted(row)}; map it with columns={{field: column}}")
    value = row[column]
    is_blank = isinstance(value, str) and not value.strip()
    if value is None or is_blank or (isinstance(value, Sequence | Mapping) and len(value) == 0):
        raise ValueError(f"{place}, column {column!r} is empty; fill it or take the row out of the data")
    return value


def _text(value: Any, column: str, place: str) -> str:
    if not isinstance(value, Sequence) or not all(isinstance(part, str) for part in value):
        raise ValueError(f"{place}, column {column!r} must be a text or a list of texts, got {type(value).__name__}")
    text = value if isinstance(value, str) else " ".join(value)
    if not text.strip():
        raise ValueError(f"{place}, column {column!r} is empty; fill it or take the row out of the data")
    if not is_unicode_text(text):
        raise ValueError(f"{place}, column {column!r} holds half of a surrogate pair, which tokenizers refuse; mend it")
    return text


def _split_of(texts: Sequence[str], test_fraction: float) -> str:
    # Not crc32: it spreads texts that differ in a digit unevenly.
    digest = hashlib.blake2b("\x1f".join(texts).encode(), digest_size=8).digest()
    return "test" if int.from_bytes(digest, "big") < test_fraction * 2**64 else "train"


def _hub_rows(source: str, split: str) -> list[NumberedRow]:
    name, _, hub_split = source.partition(":")
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in {"1", "ON", "YES", "TRUE"}:
        advice = "unset HF_HUB_OFFLINE to reach the hub, or give a local file"
    else:
        advice = "check the name and the connection, or give a local file"
    import datasets

    try:
        return list(enumerate(datasets.load_dataset(name, split=hub_split or split), start=1))
    except (OSError, datasets.exceptions.DatasetsError) as error:
        raise ConnectionError(
            f"{name!r} is no file here, and could not be read from the Hugging Face hub either; {advice} ({error})"
        ) from error
