"""Readers of rows from data files (JSONL, JSON, CSV, Parquet, saved `datasets`), tables and iterables.

The rows of a large source stay on disk and are read on access (`RowsInPlace`).
"""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import json
import os
import pickle
import sys
import tempfile
import weakref
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

Row = Mapping[str, Any]
NumberedRow = tuple[int, Row]  # numbers start at 1; they are line numbers if the format has lines
Block = list[Row] | Mapping[str, Sequence[Any]]  # successive rows: a list of rows, or a dict of columns
LARGE_BYTES = 2**25  # JSONL files of this size in bytes, or larger, are not loaded into memory
LARGE_ROWS = 50_000  # tables with this number of rows, or more, are not loaded into memory
BLOCK = 1_000  # rows per block of a temporary file (`Spool`)


class RowsInPlace:
    """Sequence of numbered rows that are read on access. Pickling writes the rows to a temporary file (`Spool`)."""

    def __init__(
        self, numbers: Sequence[int] | np.ndarray[Any, Any], read: Callable[[int, int], Row], spool: Spool | None = None
    ):
        self._numbers = numbers
        self._read = read  # arguments: position and number of the row
        self._spool = spool

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, at: int) -> NumberedRow:
        number = int(self._numbers[at])
        return number, self._read(at % len(self), number)

    def __iter__(self) -> Iterator[NumberedRow]:
        return map(self.__getitem__, range(len(self)))

    def __reduce__(self) -> tuple[Any, ...]:
        if self._spool is None:
            self._spool = Spool.of(blocks((row for _, row in self), len(self)))
        return rows_of_spool, (self._spool, len(self))


Rows = Sequence[NumberedRow] | RowsInPlace


class Spool:
    """Temporary file with blocks of rows.

    The file is deleted when the object that wrote the file is deleted. A pickle of a spool contains only the file name.
    Therefore only processes on the same machine can unpickle it.
    """

    def __init__(self, file: Path, offsets: Sequence[int], starts: Sequence[int]):
        self._file = file
        self._offsets = np.asarray(offsets, np.int64)  # byte offset of each block, then the size of the file
        self._starts = np.asarray(starts, np.int64)  # position of each block's first row, then the number of rows
        self._block: tuple[int, Block] = (-1, [])  # the last block that was read, with its number

    @classmethod
    def of(cls, parts: Iterable[Block]) -> Spool:
        """Write blocks of rows to a new temporary file."""
        handle, name = tempfile.mkstemp(prefix="collm-rows-")
        offsets, starts = [0], [0]
        try:
            with os.fdopen(handle, "wb") as file:
                for block in parts:
                    file.write(pickle.dumps(block, pickle.HIGHEST_PROTOCOL))
                    offsets.append(file.tell())
                    starts.append(starts[-1] + num_rows_in(block))
        except BaseException:
            os.unlink(name)
            raise
        spool = cls(Path(name), offsets, starts)
        weakref.finalize(spool, _remove, name, os.getpid())
        return spool

    def __len__(self) -> int:
        return int(self._starts[-1])

    def __getitem__(self, at: int) -> Row:
        number = int(np.searchsorted(self._starts, at, side="right")) - 1
        if self._block[0] != number:
            self._block = number, self._read(number)
        return row_in(self._block[1], at - int(self._starts[number]))

    def _read(self, number: int) -> Block:
        start, end = (int(each) for each in self._offsets[number : number + 2])
        try:
            with self._file.open("rb") as file:
                file.seek(start)
                block: Block = pickle.loads(file.read(end - start))
        except FileNotFoundError:
            raise ValueError(
                f"the temporary file {self._file} was deleted when its process ended; create the environment again"
            ) from None
        return block

    def __reduce__(self) -> tuple[Any, ...]:
        return Spool, (self._file, self._offsets, self._starts)


def _remove(name: str, owner: int) -> None:
    if os.getpid() == owner:  # a forked process must not delete the file
        os.unlink(name)


def blocks(rows: Iterable[Row], max_rows: int) -> Iterator[Block]:
    """Yield the first `max_rows` rows in blocks. Blocks of an `IterableDataset` are dicts of columns, for speed."""
    datasets = sys.modules.get("datasets")
    if datasets is not None and isinstance(rows, datasets.IterableDataset):
        yield from rows.take(max_rows).iter(batch_size=BLOCK)
        return
    left = itertools.islice(rows, max_rows)
    while block := list(itertools.islice(left, BLOCK)):
        yield block


def num_rows_in(block: Block) -> int:
    return len(next(iter(block.values()))) if isinstance(block, Mapping) else len(block)


def row_in(block: Block, place: int) -> Row:
    if isinstance(block, Mapping):
        return {name: column[place] for name, column in block.items()}
    return block[place]


def rows_of_table(table: Any) -> Rows:
    if len(table) < LARGE_ROWS:
        return list(enumerate(table, start=1))
    return RowsInPlace(range(1, len(table) + 1), lambda at, number: dict(table[at]))


def rows_of_spool(spool: Spool, num_rows: int) -> RowsInPlace:
    return RowsInPlace(range(1, num_rows + 1), lambda at, number: spool[at], spool)


def rows_of_stream(rows: Iterable[Row], max_rows: int) -> tuple[Rows, bool]:
    """Read up to `max_rows` rows of an iterable; large data goes to a file. Returns (rows, whether there are more)."""
    left = blocks(rows, max_rows + 1)
    first: list[Block] = []
    count = 0
    while count < LARGE_ROWS and (block := next(left, None)) is not None:
        first.append(block)
        count += num_rows_in(block)
    if count < LARGE_ROWS:
        few = [row_in(each, place) for each in first for place in range(num_rows_in(each))]
        return list(enumerate(few[:max_rows], start=1)), count > max_rows
    kept = Spool.of(itertools.chain(first, left))
    return rows_of_spool(kept, min(len(kept), max_rows)), len(kept) > max_rows


def is_data_path(text: str) -> bool:
    """Return True if the text is a local path, and False if it is the name of a data set on the Hugging Face hub."""
    path = Path(text).expanduser()
    return _has_file_suffix(path) or "{split}" in text or text.startswith((".", "/", "~")) or path.exists()


def numbered_rows(path: Path, split: str) -> Rows:
    """Read all rows of a data file, or of a directory that `save_to_disk` of `datasets` wrote.

    Raises:
        FileNotFoundError: if the path does not exist.
        ValueError: if the file's format is unknown or the content does not have this format.
    """
    if path.is_dir():
        return _saved_rows(path, split)
    reader = _READERS.get(_format(path))
    if reader is None and (path.exists() or _has_file_suffix(path)):
        raise ValueError(f"{path} has an unknown format; give one of {', '.join(_READERS)} (text files also as .gz)")
    if reader is None or not path.exists():
        raise FileNotFoundError(f"there is no data file at {path}; give an existing path, a hub name, or 'builtin'")
    if path.suffix == ".jsonl" and path.stat().st_size >= LARGE_BYTES:
        return _lines_in_place(path)
    rows = reader(path)
    return list(rows) if isinstance(rows, Iterator) else rows


def has_splits(path: Path) -> bool:
    """Return True if the path is a saved `DatasetDict`, which contains named splits."""
    return (path / "dataset_dict.json").is_file()


def _has_file_suffix(path: Path) -> bool:
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
            raise ValueError(f"{path} is not a complete gzip file ({error}); write it again") from error
    return _decoded(content, str(path))


def _decoded(content: bytes, place: str) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{place} is not UTF-8 text ({error}); save the file as UTF-8") from error


def _parsed(text: str, place: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"{place} is not valid JSON: {error}") from error
    except RecursionError:
        raise ValueError(f"{place} is nested too deep for Python's JSON parser; flatten it") from None


def _checked(path: Path, number: int, row: Any) -> NumberedRow:
    if not isinstance(row, dict):
        raise ValueError(f"{path}, row {number} must be a JSON object (column: value), got {type(row).__name__}")
    return number, row


def _lines_in_place(path: Path) -> RowsInPlace:
    """Return the rows of a JSONL file. Only the byte positions of its lines are kept in memory."""
    ends = []
    size = 0
    with path.open("rb") as file:
        while chunk := file.read(2**24):
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
        place = f"{path}, line {number}"
        return _checked(path, number, _parsed(_decoded(line, place), place))[1]

    return RowsInPlace(numbers, read)


def _jsonl_rows(path: Path) -> Iterator[NumberedRow]:
    for number, line in enumerate(_text(path).split("\n"), start=1):  # not splitlines, which also splits at U+2028
        if line.strip():
            yield _checked(path, number, _parsed(line, f"{path}, line {number}"))


def _json_rows(path: Path) -> Iterator[NumberedRow]:
    rows = _parsed(_text(path), str(path))
    if not isinstance(rows, list):
        raise ValueError(
            f"{path} must contain a list of objects, got {type(rows).__name__}; write a list, or use JSONL (.jsonl)"
        )
    for number, row in enumerate(rows, start=1):
        yield _checked(path, number, row)


def _csv_rows(path: Path) -> Iterator[NumberedRow]:
    reader = csv.DictReader(io.StringIO(_text(path), newline=""), strict=True)
    number = 0
    limit = csv.field_size_limit(sys.maxsize)  # cells may have long texts
    try:
        for number, row in enumerate(reader, start=1):
            if None in row or None in row.values():
                raise ValueError(f"{path}, row {number} must have as many cells as the header {reader.fieldnames}")
            yield number, row
    except csv.Error as error:
        raise ValueError(f"{path}, after row {number} the text is not valid CSV: {error}") from error
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
        raise ValueError(f"{path} must be a file, or a directory written by save_to_disk of datasets") from error
    if isinstance(saved, datasets.DatasetDict):
        if split not in saved:
            raise ValueError(f"{path} has no split {split!r}; choose from {', '.join(map(repr, saved))}")
        saved = saved[split]
    return rows_of_table(saved)


_READERS: dict[str, Callable[[Path], Iterator[NumberedRow] | Rows]] = {
    ".jsonl": _jsonl_rows,
    ".json": _json_rows,
    ".csv": _csv_rows,
    ".parquet": _parquet_rows,
}
_FILE_SUFFIXES = frozenset(_READERS).union(
    ".gz .zst .bz2 .xz .lz4 .zip .7z .tar .tgz .txt .tsv .ndjson .arrow .feather .orc .avro .pkl .pickle .npz .npy .h5 "
    ".xls .xlsx .xml .yaml .yml .toml .db .sqlite".split()
)
