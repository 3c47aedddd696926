"""Rows out of data files: JSONL, JSON, CSV and Parquet, and directories written by `datasets`."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

Row = Mapping[str, Any]
NumberedRow = tuple[int, Row]  # counted from 1, by lines where the format has lines


def is_data_path(text: str) -> bool:
    """Whether the text names a file or directory here rather than a data set on the Hugging Face hub."""
    path = Path(text).expanduser()
    return _format(path) in _READERS or "{split}" in text or text.startswith((".", "/", "~")) or path.exists()


def numbered_rows(path: Path, split: str) -> list[NumberedRow]:
    """All rows of a file, each with its number, so that an error can say where.

    Args:
        path: a .jsonl, .json (a list of objects), .csv or .parquet file, the first three also as .gz; or a directory
            written by `datasets`' `save_to_disk`.
        split: which part of a directory that holds several.

    Raises:
        FileNotFoundError: if there is nothing at the path.
        ValueError: if the format is unknown, or the file is not in the format that its name says.
    """
    if not path.exists():
        raise FileNotFoundError(f"there is no data file at {path}; give the path of one, a hub name, or 'builtin'")
    if path.is_dir():
        return list(_saved_rows(path, split))
    reader = _READERS.get(_format(path))
    if reader is None:
        raise ValueError(f"{path} is of an unknown format; give one of {', '.join(_READERS)}, plain or as .gz")
    return list(reader(path))


def has_splits(path: Path) -> bool:
    """Whether the path is a directory that holds several named splits."""
    return (path / "dataset_dict.json").is_file()


def _format(path: Path) -> str:
    suffixes = path.suffixes
    return suffixes[-2] if len(suffixes) > 1 and suffixes[-1] == ".gz" else path.suffix


def _text(path: Path) -> str:
    content = path.read_bytes()
    if path.suffix == ".gz":
        content = gzip.decompress(content)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text ({error}); save it as UTF-8") from error


def _parsed(path: Path, text: str, place: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}, {place} is not valid JSON: {error}") from error


def _checked(path: Path, number: int, row: Any) -> NumberedRow:
    if not isinstance(row, dict):
        raise ValueError(f"{path}, row {number} must be a JSON object of columns, got {type(row).__name__}")
    return number, row


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
    try:
        for number, row in enumerate(reader, start=1):
            if None in row or None in row.values():
                raise ValueError(f"{path}, row {number} has not as many cells as the header {reader.fieldnames}")
            yield number, row
    except csv.Error as error:
        raise ValueError(f"{path}, after row {number} is not valid CSV: {error}") from error


def _parquet_rows(path: Path) -> Iterator[NumberedRow]:
    import pyarrow
    import pyarrow.parquet

    try:
        table = pyarrow.parquet.read_table(path)
    except pyarrow.ArrowException as error:
        raise ValueError(f"{path} is not a Parquet file: {error}") from error
    yield from enumerate(table.to_pylist(), start=1)


def _saved_rows(path: Path, split: str) -> Iterator[NumberedRow]:
    import datasets

    try:
        saved = datasets.load_from_disk(str(path))
    except FileNotFoundError as error:
        raise ValueError(f"{path} is a directory, but not one written by datasets' save_to_disk") from error
    if isinstance(saved, datasets.DatasetDict):
        if split not in saved:
            raise ValueError(f"{path} has no split {split!r}; it has {', '.join(map(repr, saved))}")
        saved = saved[split]
    yield from enumerate(saved, start=1)


_READERS: dict[str, Callable[[Path], Iterator[NumberedRow]]] = {
    ".jsonl": _jsonl_rows,
    ".json": _json_rows,
    ".csv": _csv_rows,
    ".parquet": _parquet_rows,
}
