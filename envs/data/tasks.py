"""Tasks of an environment: rows of a sample in the package, of a file, of a data set on the hub, or of an object."""

from __future__ import annotations

import hashlib
import logging
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, overload

import numpy as np

from ..spaces import is_unicode_text
from .files import Rows, RowsInPlace, has_splits, is_data_path, numbered_rows, rows_of_stream, rows_of_table
from .spool import Row

BUILTIN = "builtin"
MAX_STREAMED = 1_000_000
"""Rows that are taken of an iterable without a length: it may have no end."""
Source = str | Path | Iterable[Row]
"""Where rows come from: "builtin", a path, a hub name; a `datasets.Dataset`, a list of dicts, an iterable of dicts."""
Data = Source | Mapping[str, Source]
"""A source, or one for each split."""
_ID = "id"
_HUB = re.compile(
    r"(?P<name>[\w.-]+(?:/[\w.-]+)?)(?:/(?P<config>[\w.-]+))?(?:@(?P<revision>[\w./-]+))?(?::(?P<split>.+))?"
)
_log = logging.getLogger(__name__)


class Tasks(Sequence[Mapping[str, Any]]):
    """Rows that an episode can be dealt from, each with an "id"; read-only, so that copies share them.

    A pickle of tasks that were loaded from a file or the hub says where they are, and loads them again.

    Args:
        rows: the tasks, each with a text "id" that no other has.
        source: where they are from, for messages.
        again: what loads them again, and its argument; None to pickle the rows themselves.
        is_in_place: whether rows are read, and looked at, only when they are dealt.
    """

    def __init__(
        self,
        rows: Sequence[Mapping[str, Any]],
        source: str,
        *,
        again: tuple[Callable[[Any], Tasks], Any] | None = None,
        is_in_place: bool = False,
    ):
        self.source = source
        self.is_in_place = is_in_place
        self._rows = rows if is_in_place else tuple(rows)
        self._again = again
        self._position = {} if is_in_place else {str(row[_ID]): i for i, row in enumerate(self._rows)}

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

    def __reduce__(self) -> tuple[Any, ...]:
        if self._again is not None:
            load, argument = self._again
            return load, (argument,)
        return _tasks_again, (self._rows, self.source, self.is_in_place)

    def __repr__(self) -> str:
        return f"Tasks({len(self)} of {self.source})"

    def task(self, which: int | str) -> Mapping[str, Any]:
        """The task at an index or with an id; among rows in place the first one with it, found by reading them.

        Raises:
            ValueError: if there is none.
        """
        if isinstance(which, str) and which in self._position:
            return self._rows[self._position[which]]
        if isinstance(which, int) and not isinstance(which, bool) and 0 <= which < len(self):
            return self._rows[which]
        if isinstance(which, str) and self.is_in_place:
            found = next((row for row in self._rows if row[_ID] == which), None)
            if found is not None:
                return found
        raise ValueError(
            f"there is no task {which!r} in {self.source}; give an index 0..{len(self) - 1} or an id such as "
            f"{self._rows[0][_ID]!r}"
        )


def _tasks_again(rows: Sequence[Mapping[str, Any]], source: str, is_in_place: bool) -> Tasks:
    return Tasks(rows, source, is_in_place=is_in_place)


def load_tasks(
    data: Data,
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
    kept as they are. A row's "id" is that of its column "id", or else "<split>-<row number>". Rows are looked at before
    the first is dealt; those of a large file or table (`files.LARGE_BYTES`, `files.LARGE_ROWS`) only when they are.

    Args:
        data: "builtin"; the path of a .jsonl, .json, .csv (these also as .gz) or .parquet file or of a directory
            written by `datasets`' `save_to_disk`, where "{split}" in the path stands for the split's name; the name of
            a data set on the Hugging Face hub, "owner/name", optionally with a configuration, a revision and the hub's
            own name or slice of a split, "owner/name/config@revision:train[:1000]"; a `datasets.Dataset`; or a list of
            dicts. Another iterable, such as an `IterableDataset`, is read once, to a temporary file where it is long,
            and up to 1,000,000 rows; `.take(n)` or `itertools.islice` takes fewer. A mapping, such as a `DatasetDict`,
            gives one of these for each split.
        split: "train", "test", or another that the data has.
        text_fields: fields that must hold text.
        other_fields: fields that must be there and not be empty, of any type.
        builtin: the path of the sample in the package, with "{split}" in it.
        columns: the data's name for a field where it differs: {"post": "source"}.
        test_fraction: share of rows that make up "test", the others "train", for data without splits. A row's
            place follows from a hash of its text fields, so it stays when rows are added, and twins stay together.

    Raises:
        FileNotFoundError: if there is no such file.
        TypeError: if the data is none of these.
        ValueError: if a row lacks a field or has it empty (with file, row and column), if two rows have one id, if
            the data has no such split or does not say which of its rows are in it, or if there are no rows.
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
    )
    return _load(request) if isinstance(source, str) else _tasks(request, _given_rows(source))


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


def _source(data: Data, split: str, builtin: Path | str | None, test_fraction: float | None) -> str | Iterable[Row]:
    """The file, hub name or object that holds the split."""
    if isinstance(data, Mapping) and split not in data:
        raise ValueError(f"data has no split {split!r}; it gives {', '.join(map(repr, data)) or 'none'}")
    chosen: Any = data[split] if isinstance(data, Mapping) else data
    if not isinstance(chosen, str | Path):
        _refuse_no_rows(chosen)
        _refuse_unsaid_split(isinstance(data, Mapping), split, test_fraction, f"a {type(chosen).__name__}")
        rows: Iterable[Row] = chosen
        return rows
    name = str(chosen)
    if name == BUILTIN:
        if builtin is None or split not in ("train", "test"):
            raise ValueError(f"there is no built-in data for the split {split!r}; give a file or a hub name")
        name = str(builtin)
    is_path = is_data_path(name)
    named = None if is_path else _hub_name(name)["split"]
    has_own = "{split}" in name or has_splits(Path(name).expanduser()) if is_path else named is None
    if test_fraction is not None and (isinstance(data, Mapping) or (is_path and has_own)):
        raise ValueError(f"test_fraction divides rows without splits, but {data!r} has them; leave one of the two out")
    is_said = isinstance(data, Mapping) or has_own or (named is not None and named.partition("[")[0] == split)
    _refuse_unsaid_split(is_said, split, test_fraction, name)
    return str(Path(name.replace("{split}", split)).expanduser()) if is_path else name


def _refuse_no_rows(chosen: Any) -> None:
    if not isinstance(chosen, Iterable) or isinstance(chosen, bytes):
        raise TypeError(
            f"data must be 'builtin', a path, a hub name, a datasets.Dataset, a list of dicts or an iterable of dicts, "
            f"or one of these for each split; got {type(chosen).__name__}: {chosen!r:.80}"
        )


def _refuse_unsaid_split(is_said: bool, split: str, test_fraction: float | None, name: str) -> None:
    """Refuse to take the same rows for one split and another."""
    if not is_said and split != "train" and test_fraction is None:
        raise ValueError(
            f"{name} does not say which of its rows are {split!r}; give data={{'train': …, {split!r}: …}}, "
            "a path with '{split}' in it, or test_fraction"
        )


def _hub_name(name: str) -> re.Match[str]:
    found = _HUB.fullmatch(name)
    if found is None:
        raise ValueError(
            f"{name!r} is no file here, nor the name of a data set on the hub, such as "
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
    """The tasks of a file or a hub name; once, since many copies of an environment ask for them."""
    source = request.source
    if request.stamp != _stamp(source):
        raise ValueError(f"{source} has changed or gone since its tasks were pickled; make the environment anew")
    whole = request.split if request.test_fraction is None else "train"
    rows = numbered_rows(Path(source), whole) if is_data_path(source) else _hub_rows(source, whole)
    return _tasks(request, rows, again=(_load, request))


def _tasks(request: _Request, rows: Rows, again: tuple[Callable[[Any], Tasks], Any] | None = None) -> Tasks:
    source, split = request.source, request.split
    label = f"{source} ({split})"
    if isinstance(rows, RowsInPlace):
        return Tasks(_TasksInPlace(rows, request), label, again=again, is_in_place=True)
    tasks: list[dict[str, Any]] = []
    numbers: dict[str, int] = {}
    for number, row in rows:
        task = _task(row, number, request)
        if not _is_of_split(task, request):
            continue
        if task[_ID] in numbers:
            raise ValueError(f"{source}, rows {numbers[task[_ID]]} and {number} have the same id {task[_ID]!r}")
        numbers[task[_ID]] = number
        tasks.append(task)
    if not tasks:
        raise ValueError(f"{source} has no rows for the split {split!r}")
    return Tasks(tasks, label, again=again)


class _TasksInPlace(Sequence[Mapping[str, Any]]):
    """Tasks made of rows in place when they are asked for."""

    def __init__(self, rows: Rows, request: _Request):
        self._rows = rows
        self._request = request
        self._chosen: range | np.ndarray[Any, Any] = range(len(rows))
        if request.test_fraction is not None:
            every = (_task(row, number, request) for number, row in rows)
            self._chosen = np.flatnonzero([_is_of_split(task, request) for task in every])

    def __len__(self) -> int:
        return len(self._chosen)

    @overload
    def __getitem__(self, index: int) -> Mapping[str, Any]: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Mapping[str, Any]]: ...
    def __getitem__(self, index: int | slice) -> Mapping[str, Any] | Sequence[Mapping[str, Any]]:
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(self)))]
        number, row = self._rows[int(self._chosen[index])]
        return _task(row, number, self._request)

    def __getstate__(self) -> dict[str, Any]:
        kept = self._chosen if isinstance(self._chosen, range) else np.packbits(_marked(self._chosen, len(self._rows)))
        return {"rows": self._rows, "request": self._request, "kept": kept}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self._rows, self._request, kept = state["rows"], state["request"], state["kept"]
        self._chosen = kept if isinstance(kept, range) else np.flatnonzero(np.unpackbits(kept))


def _marked(chosen: np.ndarray[Any, Any], count: int) -> np.ndarray[Any, Any]:
    """True at the chosen ones of so many places."""
    marks = np.zeros(count, bool)
    marks[chosen] = True
    return marks


def _given_rows(source: Iterable[Row]) -> Rows:
    """The rows of an object."""
    rows = rows_of_table(source) if isinstance(source, Sized) else _streamed(_Given(source))
    wrong = next((row for _, row in rows[:1] if not isinstance(row, Mapping)), None)
    if wrong is not None:
        raise TypeError(f"rows must be dicts of columns, got {type(wrong).__name__}: {wrong!r:.80}")
    return rows


class _Given:
    """An object by what it is, not by what it holds: copies of an environment ask for the rows of the same one."""

    def __init__(self, rows: Iterable[Row]):
        self.rows = rows

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Given) and other.rows is self.rows

    def __hash__(self) -> int:
        return id(self.rows)


@lru_cache(maxsize=16)
def _streamed(given: _Given) -> Rows:
    """The rows of an iterable without a length, which may be read only once; many of them are kept on disk."""
    rows, has_more = rows_of_stream(given.rows, MAX_STREAMED)
    if has_more:
        _log.warning(
            "of the given %s the first %d rows are taken; give a Dataset or a file for all of them",
            type(given.rows).__name__,
            MAX_STREAMED,
        )
    return rows


def _is_of_split(task: Mapping[str, Any], request: _Request) -> bool:
    if request.test_fraction is None:
        return True
    return request.split == _split_of([task[name] for name, _ in request.text_fields], request.test_fraction)


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
            f"{name!r} is no file here, and could not be read from the Hugging Face hub either; {advice} ({error})"
        ) from error
