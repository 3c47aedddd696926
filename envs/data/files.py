"""Rows out of data files: JSONL, JSON, CSV and Parquet, and directories written by `datasets`.

Rows are a sequence, each with its number. Those of a large file stay where they are, and are read when they are asked
for: a million of them start in a second or two and take no more memory than where each begins.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, overload

import numpy as np

from .spool import Block, Row, Spool, blocks, num_rows_in, row_in

NumberedRow = tuple[int, Row]  # counted from 1, by lines where the format has lines
Rows = Sequence[NumberedRow]
LARGE_BYTES = 2**25
"""Size of a file of JSON lines from which on its rows stay in the file."""
LARGE_ROWS = 50_000
"""Number of rows from which on those of a table stay in it."""
_CHUNK = 2**24


class RowsInPlace(Sequence[NumberedRow]):
    """Rows that are read when they are asked for.

    A pickle has them on disk, in a `Spool`, and names it.

    Args:
        numbers: the number of each row.
        read: the row at a position, with its number for messages.
    """

    def __init__(self, numbers: Sequence[int] | np.ndarray[Any, Any], read: Callable[[int, int], Row]):
        self._numbers = numbers
        self._read = read
        self._spool: Spool | None = None

    def __len__(self) -> int:
        return len(self._numbers)

    @overload
    def __getitem__(self, index: int) -> NumberedRow: ...
    @overload
    def __getitem__(self, index: slice) -> Rows: ...
    def __getitem__(self, index: int | slice) -> NumberedRow | Rows:
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        at = index % len(self)
        return int(self._numbers[at]), self._read(at, int(self._numbers[at]))

    def __reduce__(self) -> tuple[Any, ...]:
        if self._spool is None:
            self._spool = Spool.of(blocks((row for _, row in self), len(self)))
        return rows_of_spool, (self._spool, len(self))


def rows_of_table(table: Any) -> Rows:
    """The rows of a `datasets.Dataset`, or of anything else with a length whose items are rows."""
    if len(table) < LARGE_ROWS:
        return list(enumerate(table, start=1))
    return RowsInPlace(range(1, len(table) + 1), lambda at, number: dict(table[at]))


def rows_of_spool(spool: Spool, num_rows: int) -> RowsInPlace:
    """The first rows that a spool holds."""
    rows = RowsInPlace(range(1, num_rows + 1), lambda at, number: spool[at])
    rows._spool = spool
    return rows


def rows_of_stream(rows: Iterable[Row], max_rows: int) -> tuple[Rows, bool]:
    """The first rows of what has no length and is read only once, on disk if they are many; and whether more came."""
    left = blocks(rows, max_rows + 1)
    first: list[Block] = []
    count = 0
    while count < LARGE_ROWS and (block := next(left, None)) is not None:
        first.append(block)
        count += num_rows_in(block)
    if count < LARGE_ROWS:
        few = [row_in(each, place) for each in first for place in range(num_rows_in(each))]
        return list(enumerate(few[:max_rows], start=1)), count > max_rows
    kept = Spool.of(chain(first, left))
    return rows_of_spool(kept, min(len(kept), max_rows)), len(kept) > max_rows


def is_data_path(text: str) -> bool:
    """Whether the text names a file or directory here rather than a data set on the Hugging Face hub."""
    path = Path(text).expanduser()
    return _is_file_name(path) or "{split}" in text or text.startswith((".", "/", "~")) or path.exists()


def numbered_rows(path: Path, split: str) -> Rows:
    """All rows of a file, each with its number, so that an error can say where.

    Those of JSON lines (not as .gz) and of Parquet and saved directories are `RowsInPlace` where there are many.

    Args:
        path: a .jsonl, .json (a list of objects), .csv or .parquet file, the first three also as .gz; or a directory
            written by `datasets`' `save_to_disk`.
        split: which part of a directory that holds several.

    Raises:
        FileNotFoundError: if there is nothing at the path.
        ValueError: if the format is unknown, or the file is not in the format that its name says.
    """
    if path.is_dir():
        return _saved_rows(path, split)
    reader = _READERS.get(_format(path))
    if reader is None and (path.exists() or _is_file_name(path)):
        raise ValueError(f"{path} is of an unknown format; give one of {', '.join(_READERS)}; text also as .gz")
    if reader is None or not path.exists():
        raise FileNotFoundError(f"there is no data file at {path}; give the path of one, a hub name, or 'builtin'")
    if path.suffix == ".jsonl" and path.stat().st_size >= LARGE_BYTES:
        return _lines_in_place(path)
    rows = reader(path)
    return rows if isinstance(rows, Sequence) else list(rows)


def has_splits(path: Path) -> bool:
    """Whether the path is a directory that holds several named splits."""
    return (path / "dataset_dict.json").is_file()


def _is_file_name(path: Path) -> bool:
    """Whether a name ends as files of data do, which names on the hub do not."""
    return not _FILE_SUFFIXES.isdisjoint({path.suffix, _format(path)})


def _format(path: Path) -> str:
    suffixes = path.suffixes
    return suffixes[-2] if len(suffixes) > 1 and suffixes[-1] == ".gz" else path.suffix


def _text(path: Path) -> str:
    content = path.read_bytes()
    if path.suffix == ".gz":
        try:
            content = gzip.decompress(content)
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise ValueError(f"{path} is not a whole gzip file ({error}); write it anew") from error
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text ({error}); save it as UTF-8") from error


def _parsed(path: Path, text: str, place: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}, {place} is not valid JSON: {error}") from error
    except RecursionError:
        raise ValueError(f"{path}, {place} is nested too deep to be read as JSON") from None


def _checked(path: Path, number: int, row: Any) -> NumberedRow:
    if not isinstance(row, dict):
        raise ValueError(f"{path}, row {number} must be a JSON object of columns, got {type(row).__name__}")
    return number, row


def _lines_in_place(path: Path) -> Rows:
    """The rows of a large file of JSON lines, of which only the places are kept."""
    ends = []
    size = 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            ends.append(np.flatnonzero(np.frombuffer(chunk, np.uint8) == ord("\n")) + size)
            size += len(chunk)
    stops = np.concatenate([*ends, [size]])
    starts = np.concatenate([[0], stops[:-1] + 1])
    is_line = stops - starts > 1  # neither empty, nor the "\r" of an empty line
    starts, stops, numbers = starts[is_line], stops[is_line], np.flatnonzero(is_line) + 1

    def read(at: int, number: int) -> Row:
        with path.open("rb") as file:
            file.seek(int(starts[at]))
            line = file.read(int(stops[at] - starts[at]))
        try:
            text = line.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise ValueError(f"{path}, line {number} is not UTF-8 text ({error}); save the file as UTF-8") from error
        return _checked(path, number, _parsed(path, text, f"line {number}"))[1]

    return RowsInPlace(numbers, read)


def _jsonl_rows(path: Path) -> Iterator[NumberedRow]:
    for number, line in enumerate(_text(path).split("\n"), start=1):  # not splitlines: it also splits at U+2028
        if line.strip():
            yield _checked(path, number, _parsed(path, line, f"line {number}"))


def _json_rows(path: Path) -> Iterator[NumberedRow]:
    rows = _parsed(path, _text(path), "the whole file")
    if not isinstance(rows, list):
        raise ValueError(f"{path} must hold a list of objects, got {type(rows).__name__}; or use JSON lines (.jsonl)")
    for number, row in enumerate(rows, start=1):
        yield _checked(path, number, row)


def _csv_rows(path: Path) -> Iterator[NumberedRow]:
    reader = csv.DictReader(io.StringIO(_text(path), newline=""), strict=True)
    number = 0
    limit = csv.field_size_limit(sys.maxsize)  # a text of a book's length is no fault
    try:
        for number, row in enumerate(reader, start=1):
            if None in row or None in row.values():
                raise ValueError(f"{path}, row {number} has not as many cells as the header {reader.fieldnames}")
            yield number, row
    except csv.Error as error:
        raise ValueError(f"{path}, after row {number} is not valid CSV: {error}") from error
    finally:
        csv.field_size_limit(limit)


def _parquet_rows(path: Path) -> Rows:
    import pyarrow
    import pyarrow.parquet

    try:
        table = pyarrow.parquet.read_table(path)
    except pyarrow.ArrowException as error:
        raise ValueError(f"{path} is not a Parquet file: {error}") from error
    if table.num_rows < LARGE_ROWS:
        return list(enumerate(table.to_pylist(), start=1))
    return RowsInPlace(range(1, table.num_rows + 1), lambda at, number: dict(table.slice(at, 1).to_pylist()[0]))


def _saved_rows(path: Path, split: str) -> Rows:
    import datasets

    try:
        saved = datasets.load_from_disk(str(path))
    except FileNotFoundError as error:
        raise ValueError(f"{path} is a directory, but not one written by datasets' save_to_disk") from error
    if isinstance(saved, datasets.DatasetDict):
        if split not in saved:
            raise ValueError(f"{path} has no split {split!r}; it has {', '.join(map(repr, saved))}")
        saved = saved[split]
    return rows_of_table(saved)


_READERS: dict[str, Callable[[Path], Iterator[NumberedRow] | Rows]] = {
    ".jsonl": _jsonl_rows,
    ".json": _json_rows,
    ".csv": _csv_rows,
    ".parquet": _parquet_rows,
}
_FILE_SUFFIXES = frozenset(
    {
        *_READERS,
        *(".gz", ".zst", ".bz2", ".xz", ".lz4", ".zip", ".7z", ".tar", ".tgz"),
        *(".txt", ".tsv", ".ndjson", ".arrow", ".feather", ".orc", ".avro", ".pkl", ".pickle", ".npz", ".npy", ".h5"),
        *(".xls", ".xlsx", ".xml", ".yaml", ".yml", ".toml", ".db", ".sqlite"),
    }
)
