"""Rows of an object on disk: a million of them take no memory, and travel to other processes as the name of a file."""

from __future__ import annotations

import itertools
import os
import pickle
import sys
import tempfile
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

Row = Mapping[str, Any]
Block = list[Row] | Mapping[str, Sequence[Any]]
"""Rows one after the other, or by columns."""

BLOCK = 1_000
"""Rows that are written, and read again, at once."""


class Spool:
    """Rows in a temporary file, by position.

    The file lives as long as the spool that wrote it. A pickle names the file: it is for other processes of the same
    machine, such as workers, and of no use afterwards.

    Args:
        file: where the rows are.
        offsets: where in it each block begins, and the last one ends.
        starts: the position of each block's first row, and the number of all rows.
    """

    def __init__(self, file: Path, offsets: Sequence[int], starts: Sequence[int]):
        self._file = file
        self._offsets = np.asarray(offsets, np.int64)
        self._starts = np.asarray(starts, np.int64)
        self._block: tuple[int, Block] = (-1, [])

    @classmethod
    def of(cls, parts: Iterable[Block]) -> Spool:
        """Write blocks to a file of their own."""
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
        weakref.finalize(spool, _removed, name, os.getpid())
        return spool

    def __len__(self) -> int:
        return int(self._starts[-1])

    def __getitem__(self, at: int) -> Row:
        number = int(np.searchsorted(self._starts, at, side="right")) - 1
        kept, block = self._block
        if kept != number:
            block = self._read(number)
            self._block = number, block
        return row_in(block, at - int(self._starts[number]))

    def _read(self, number: int) -> Block:
        start, end = (int(each) for each in self._offsets[number : number + 2])
        try:
            with self._file.open("rb") as file:
                file.seek(start)
                found: Block = pickle.loads(file.read(end - start))
        except FileNotFoundError:
            raise ValueError(
                f"{self._file}, which held rows of an object, is gone with the process that was given it; make the "
                "environment anew"
            ) from None
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        return Spool, (self._file, self._offsets, self._starts)


def blocks(rows: Iterable[Row], max_rows: int) -> Iterator[Block]:
    """The first rows, up to `BLOCK` at a time; those of an `IterableDataset` as columns, which are quicker."""
    datasets = sys.modules.get("datasets")
    if datasets is not None and isinstance(rows, datasets.IterableDataset):
        yield from rows.take(max_rows).iter(batch_size=BLOCK)
        return
    left = itertools.islice(rows, max_rows)
    while block := list(itertools.islice(left, BLOCK)):
        yield block


def num_rows_in(block: Block) -> int:
    """How many rows a block has."""
    return len(next(iter(block.values()))) if isinstance(block, Mapping) else len(block)


def row_in(block: Block, place: int) -> Row:
    """The row at a place of a block."""
    if isinstance(block, Mapping):
        return {name: column[place] for name, column in block.items()}
    return block[place]


def _removed(name: str, owner: int) -> None:
    if os.getpid() == owner:  # a forked copy does not take the file away
        os.unlink(name)
