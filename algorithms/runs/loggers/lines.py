"""Rows as lines of JSON: the records that every run writes, whole lines whatever happens."""

from __future__ import annotations

import json
import math
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from ...._json import parse_json, refuse_device
from ..files import DamagedRunError


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
