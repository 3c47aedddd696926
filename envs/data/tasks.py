"""Tasks of an environment, loaded from a file, a data set on the Hugging Face hub, or a Python object."""

from __future__ import annotations

import hashlib
import logging
import os
import re
from collections.abc import Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, get_args, overload

import numpy as np

from ..spaces import is_unicode_text
from .files import Row, Rows, RowsInPlace, has_splits, is_data_path, numbered_rows, rows_of_stream, rows_of_table

BUILTIN = "builtin"
MAX_STREAMED = 1_000_000  # rows that are read at most from an iterable without a length, which may be infinite
Source = str | Path | Iterable[Row]  # "builtin", a path, a hub name, a `datasets.Dataset`, or an iterable of dicts
Data = Source | Mapping[str, Source]  # source of rows, or a dict with one source per split
OnBadRow = Literal["error", "skip"]
_ID = "id"
_HUB = re.compile(
    r"(?P<name>[\w.-]+(?:/[\w.-]+)?)(?:/(?P<config>[\w.-]+))?(?:@(?P<revision>[\w./-]+))?(?::(?P<split>.+))?"
)
_log = logging.getLogger(__name__)


class EmptyFieldError(ValueError):
    """Error for a row in which a required field is null or blank."""


class Tasks(Sequence[Mapping[str, Any]]):
    """Read-only sequence of the tasks (dicts) of a split, each with a unique text "id". A deep copy is the same object.

    A pickle of tasks from a file or the hub contains only the path or name. Unpickling loads the tasks again.

    Args:
        rows: tasks.
        source: name of the file, data set or object, for error messages.
        request: arguments to load the tasks again when unpickled. None: a pickle contains the rows.
    """

    def __init__(self, rows: Sequence[Mapping[str, Any]] | _TasksInPlace, source: str, request: _Request | None = None):
        self.source = source
        self.is_in_place = isinstance(rows, _TasksInPlace)
        self._rows = rows if isinstance(rows, _TasksInPlace) else tuple(rows)
        self._request = request
        self._position = {} if self.is_in_place else {str(row[_ID]): at for at, row in enumerate(self)}

    @overload
    def __getitem__(self, index: int) -> Mapping[str, Any]: ...
    @overload
    def __getitem__(self, index: slice) -> Tasks: ...
    def __getitem__(self, index: int | slice) -> Mapping[str, Any] | Tasks:
        if isinstance(index, slice):
            return Tasks([self[at] for at in range(*index.indices(len(self)))], self.source)
        return self._rows[index]

    def __len__(self) -> int:
        return len(self._rows)

    def __deepcopy__(self, memo: Any) -> Tasks:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return (Tasks, (self._rows, self.source)) if self._request is None else (_load, (self._request,))

    def __repr__(self) -> str:
        return f"Tasks({len(self)} of {self.source})"

    def task(self, which: int | str) -> Mapping[str, Any]:
        """Return the task with this index or id. For rows on disk, the search for an id reads all rows.

        Raises:
            ValueError: if there is no such task.
        """
        found: Mapping[str, Any] | None = None
        if isinstance(which, int) and not isinstance(which, bool) and 0 <= which < len(self):
            found = self[which]
        elif isinstance(which, str) and self.is_in_place:
            found = next((row for row in self if row[_ID] == which), None)
        elif isinstance(which, str) and which in self._position:
            found = self[self._position[which]]
        if found is None:
            raise ValueError(
                f"there is no task {which!r} in {self.source}; give an index 0..{len(self) - 1} or an id such as "
                f"{self[0][_ID]!r}"
            )
        return found


def load_tasks(
    data: Data,
    split: str = "train",
    *,
    text_fields: Sequence[str],
    other_fields: Sequence[str] = (),
    builtin: Path | str | None = None,
    columns: Mapping[str, str] | None = None,
    test_fraction: float | None = None,
    on_bad_row: OnBadRow = "error",
) -> Tasks:
    """Load the tasks of a split, and check that each task has the fields that an environment needs.

    A list of texts in a text field is joined by spaces. Columns that are not fields are kept. A row without a column
    "id" gets the id "<split>-<row number>". Rows are checked when they are loaded, but rows of large files and tables
    (`files.LARGE_BYTES`, `files.LARGE_ROWS`) are checked when they are used.

    Args:
        data: one of the following. "builtin": the built-in sample. A path of a .jsonl, .json, .csv (each also .gz) or
            .parquet file, or of a directory that `save_to_disk` of `datasets` wrote; "{split}" in the path is replaced
            by the split's name. A data set on the Hugging Face hub, such as "owner/name" or
            "owner/name/config@revision:train[:1000]". A `datasets.Dataset` or a list of dicts. An iterable of dicts,
            which is read once, up to 1,000,000 rows. A dict with one of these per split.
        split: "train", "test", or another split of the data.
        text_fields: required fields with text.
        other_fields: required fields of any type that are not empty.
        builtin: path of the built-in sample, with "{split}" in it.
        columns: dict field -> column, for fields whose column has another name: {"post": "source"}.
        test_fraction: for data without splits: fraction of the rows in "test"; the others are in "train". A hash of the
            text fields decides. A row keeps its split when rows are added, and equal rows are in the same split.
        on_bad_row: treatment of rows in which a field is null or blank: "error" raises ValueError, "skip" leaves these
            rows out.

    Raises:
        FileNotFoundError: if the file does not exist.
        TypeError: if the data is of another type.
        ValueError: if a field of a row is missing or empty, two rows have the same id, the data does not have the
            split, or there are no rows.
        ConnectionError: if the hub cannot be read.
    """
    text, other = tuple(text_fields), tuple(other_fields)
    renamed = renamed_columns(columns)
    if on_bad_row not in get_args(OnBadRow):
        raise ValueError(f"{on_bad_row=} must be one of {get_args(OnBadRow)}")
    unknown = set(renamed) - {*text, *other, _ID}
    if unknown:
        raise ValueError(f"columns has unknown fields {sorted(unknown)}; choose from {[*text, *other, _ID]}")
    if test_fraction is not None and not 0 < test_fraction < 1:
        raise ValueError(f"{test_fraction=} must be between 0 and 1")
    source = _source(data, split, builtin, test_fraction)
    place = source if isinstance(source, str) else f"the given {type(source).__name__}"
    request = _Request(
        place,
        _stamp(place),
        split,
        text_fields=tuple((name, renamed.get(name, name)) for name in text),
        other_fields=tuple((name, renamed.get(name, name)) for name in other),
        id_column=renamed.get(_ID, _ID),
        is_id_required=_ID in renamed,
        test_fraction=test_fraction,
        on_bad_row=on_bad_row,
    )
    return _load(request) if isinstance(source, str) else _tasks(request, _given_rows(source))


def renamed_columns(columns: Mapping[str, str] | None) -> dict[str, str]:
    """Return `columns` as a dict field -> column. Raises `ValueError` for another type."""
    if columns is None or (isinstance(columns, Mapping) and all(isinstance(each, str) for each in columns.values())):
        return dict(columns or {})
    raise ValueError(f'columns={columns!r} must be a dict from fields to columns, such as {{"post": "selftext"}}')


@dataclass(frozen=True)
class _Request:
    """Hashable arguments for loading tasks. `_load` uses them as the keys of its cache."""

    source: str
    stamp: tuple[int, int] | None  # modification time and size of the file
    split: str
    text_fields: tuple[tuple[str, str], ...]  # pairs of field and column
    other_fields: tuple[tuple[str, str], ...]
    id_column: str
    is_id_required: bool
    test_fraction: float | None
    on_bad_row: OnBadRow


def _source(data: Data, split: str, builtin: Path | str | None, test_fraction: float | None) -> str | Iterable[Row]:
    """Return the file path, hub name or object with the rows of the split."""
    has_splits_given = isinstance(data, Mapping)
    if isinstance(data, Mapping) and split not in data:
        raise ValueError(f"data has no split {split!r}; it has {', '.join(map(repr, data)) or 'none'}")
    chosen: Any = data[split] if isinstance(data, Mapping) else data
    if not isinstance(chosen, str | Path):
        if not isinstance(chosen, Iterable) or isinstance(chosen, bytes):
            raise TypeError(
                "data must be 'builtin', a path, a hub name, a datasets.Dataset, a list of dicts or an iterable of "
                f"dicts, or one of these for each split; got {type(chosen).__name__}: {chosen!r:.80}"
            )
        _check_split(has_splits_given, split, test_fraction, f"a {type(chosen).__name__}")
        return chosen
    name = str(chosen)
    if name == BUILTIN:
        if builtin is None or split not in ("train", "test"):
            raise ValueError(f"there is no built-in data for {split=}; give a file or a hub name")
        name = str(builtin)
    is_path = is_data_path(name)
    named = None if is_path else _hub_name(name)["split"]
    has_own = "{split}" in name or has_splits(Path(name).expanduser()) if is_path else named is None
    if test_fraction is not None and (has_splits_given or (is_path and has_own)):
        raise ValueError(f"{test_fraction=} needs rows without splits, but {data!r} has splits; use only one")
    is_named = has_splits_given or has_own or (named is not None and named.partition("[")[0] == split)
    _check_split(is_named, split, test_fraction, name)
    return str(Path(name.replace("{split}", split)).expanduser()) if is_path else name


def _check_split(is_named: bool, split: str, test_fraction: float | None, name: str) -> None:
    """Raise ValueError if data without splits is used for another split than "train": the rows would be the same."""
    if not is_named and split != "train" and test_fraction is None:
        raise ValueError(
            f"{name} does not define the split {split!r}; give data={{'train': …, {split!r}: …}}, a path with "
            "'{split}' in it, or test_fraction"
        )


def _hub_name(name: str) -> re.Match[str]:
    found = _HUB.fullmatch(name)
    if found is None:
        raise ValueError(
            f"{name!r} must be a file or the name of a data set on the hub, such as "
            "'owner/name/config@revision:train[:1000]'"
        )
    return found


def _stamp(source: str) -> tuple[int, int] | None:
    if not os.path.isfile(source):
        return None
    state = os.stat(source)
    return state.st_mtime_ns, state.st_size


@lru_cache(maxsize=16)
def _load(request: _Request) -> Tasks:
    """Load the tasks of a file or a hub name. The result is cached, so that copies of an environment share it."""
    source = request.source
    if request.stamp != _stamp(source):
        raise ValueError(f"{source} was changed or removed after its tasks were pickled; create the environment again")
    whole = request.split if request.test_fraction is None else "train"
    rows = numbered_rows(Path(source), whole) if is_data_path(source) else _hub_rows(source, whole)
    return _tasks(request, rows, is_loaded=True)


def _tasks(request: _Request, rows: Rows, is_loaded: bool = False) -> Tasks:
    source, split = request.source, request.split
    label, again = f"{source} ({split})", request if is_loaded else None
    if isinstance(rows, RowsInPlace):
        return Tasks(_TasksInPlace(rows, request), label, again)
    tasks: list[dict[str, Any]] = []
    numbers: dict[str, int] = {}
    for number, row in rows:
        task = _task_of_split(row, number, request)
        if task is None:
            continue
        if task[_ID] in numbers:
            raise ValueError(f"{source}, rows {numbers[task[_ID]]} and {number} have the same id {task[_ID]!r}")
        numbers[task[_ID]] = number
        tasks.append(task)
    if not tasks:
        raise ValueError(f"{source} has no rows for the split {split!r}")
    return Tasks(tasks, label, again)


class _TasksInPlace:
    """Tasks whose rows stay on disk and are read on access."""

    def __init__(self, rows: RowsInPlace, request: _Request):
        self._rows = rows
        self._request = request
        self._chosen: range | np.ndarray[Any, Any] = range(len(rows))
        if request.test_fraction is not None or request.on_bad_row == "skip":
            every = (_task_of_split(row, number, request) for number, row in rows)
            self._chosen = np.flatnonzero([task is not None for task in every])

    def __len__(self) -> int:
        return len(self._chosen)

    def __getitem__(self, index: int) -> Mapping[str, Any]:
        number, row = self._rows[int(self._chosen[index])]
        return _task(row, number, self._request)

    def __getstate__(self) -> dict[str, Any]:
        chosen = self._chosen
        if not isinstance(chosen, range):
            chosen = np.packbits(np.isin(np.arange(len(self._rows)), chosen))  # 1 bit per row in a pickle
        return self.__dict__ | {"_chosen": chosen}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__dict__.update(state)
        if not isinstance(self._chosen, range):
            self._chosen = np.flatnonzero(np.unpackbits(self._chosen))


def _given_rows(source: Iterable[Row]) -> Rows:
    rows = rows_of_table(source) if isinstance(source, Sized) else _streamed(_Given(source))
    _, first = next(iter(rows), (0, {}))
    if not isinstance(first, Mapping):
        raise TypeError(f"rows of data must be dicts column -> value, got {type(first).__name__}: {first!r:.80}")
    return rows


class _Given:
    """Cache key that compares iterables by identity, because they may be unhashable."""

    def __init__(self, rows: Iterable[Row]):
        self.rows = rows

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Given) and other.rows is self.rows

    def __hash__(self) -> int:
        return id(self.rows)


@lru_cache(maxsize=16)
def _streamed(given: _Given) -> Rows:
    """Read the rows of an iterable. The result is cached, because an iterable can be read only once."""
    rows, has_more = rows_of_stream(given.rows, MAX_STREAMED)
    if has_more:
        _log.warning(
            "only the first %d rows of the given %s are used; to use all rows, give a Dataset or a file",
            MAX_STREAMED,
            type(given.rows).__name__,
        )
    return rows


def _task_of_split(row: Row, number: int, request: _Request) -> dict[str, Any] | None:
    """Return the task of a row. None: the row is of another split, or is empty and left out."""
    try:
        task = _task(row, number, request)
    except EmptyFieldError:
        if request.on_bad_row == "error":
            raise
        return None
    if request.test_fraction is None:
        return task
    texts = "\x1f".join(task[name] for name, _ in request.text_fields)
    # Not crc32, which distributes texts that differ in one digit unevenly.
    digest = hashlib.blake2b(texts.encode(), digest_size=8).digest()
    is_test = int.from_bytes(digest, "big") < request.test_fraction * 2**64
    return task if request.split == ("test" if is_test else "train") else None


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
        raise EmptyFieldError(f"{place}, column {column!r} is empty; fill it, or leave it out by on_bad_row='skip'")
    return value


def _text(value: Any, column: str, place: str) -> str:
    if not isinstance(value, Sequence) or not all(isinstance(part, str) for part in value):
        raise ValueError(f"{place}, column {column!r} must be a text or a list of texts, got {type(value).__name__}")
    text = value if isinstance(value, str) else " ".join(value)
    if not text.strip():
        raise EmptyFieldError(f"{place}, column {column!r} is empty; fill it, or leave it out by on_bad_row='skip'")
    if not is_unicode_text(text):
        raise ValueError(
            f"{place}, column {column!r} has a lone surrogate (U+D800 to U+DFFF), which is not valid; remove it"
        )
    return text


def _hub_rows(source: str, split: str) -> Rows:
    name, config, revision, hub_split = _hub_name(source).group("name", "config", "revision", "split")
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in {"1", "ON", "YES", "TRUE"}:
        advice = "unset HF_HUB_OFFLINE to reach the hub, or give a local file"
    else:
        advice = "check the name and the connection, or give a local file"
    import datasets

    chosen = {key: value for key, value in {"name": config, "revision": revision}.items() if value}
    try:
        return rows_of_table(datasets.load_dataset(name, split=hub_split or split, **chosen))
    except (OSError, datasets.exceptions.DatasetsError) as error:
        raise ConnectionError(
            f"{name!r} is not a local file, and could not be read from the Hugging Face hub; {advice} ({error})"
        ) from error
