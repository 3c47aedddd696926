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

BLOCK = 1_000
"""Rows that are written, and read again, at once."""


class Spool:
    """Rows in a temporary file, by position.

    The file lives as long as the spool that wrote it. A pickle names the file: it is for other processes of the same
    machine, such as workers, and of no use afterwards.

    Args:
        file: where the rows are.
        offsets: where each block begins, and the last one ends.
        num_rows: how many there are.
    """

    def __init__(self, file: Path, offsets: Sequence[int], num_rows: int):
        self._file = file
        self._offsets = np.asarray(offsets, np.int64)
        self._num_rows = num_rows
        self._block: tuple[int, Sequence[Row]] = (-1, ())

    @classmethod
    def of(cls, rows: Iterable[Row]) -> Spool:
        """Write rows to a file of their own."""
        handle, name = tempfile.mkstemp(prefix="collm-rows-")
        offsets, num_rows = [0], 0
        try:
            with os.fdopen(handle, "wb") as file:
                for block in blocks(rows):
                    file.write(pickle.dumps(block, pickle.HIGHEST_PROTOCOL))
                    offsets.append(file.tell())
                    num_rows += len(block)
        except BaseException:
            os.unlink(name)
            raise
        spool = cls(Path(name), offsets, num_rows)
        weakref.finalize(spool, _removed, name, os.getpid())
        return spool

    def __len__(self) -> int:
        return self._num_rows

    def __getitem__(self, at: int) -> Row:
        number, place = divmod(at, BLOCK)
        kept, block = self._block
        if kept != number:
            block = self._read(number)
            self._block = number, block
        return block[place]

    def _read(self, number: int) -> Sequence[Row]:
        start, end = (int(each) for each in self._offsets[number : number + 2])
        try:
            with self._file.open("rb") as file:
                file.seek(start)
                found: Sequence[Row] = pickle.loads(file.read(end - start))
        except FileNotFoundError:
            raise ValueError(
                f"{self._file}, which held rows of an object, is gone with the process that was given it; make the "
                "environment anew"
            ) from None
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        return Spool, (self._file, self._offsets, self._num_rows)


def blocks(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """The rows, up to `BLOCK` at a time; those of an `IterableDataset` in its own batches, which are quicker."""
    datasets = sys.modules.get("datasets")
    if datasets is not None and isinstance(rows, datasets.IterableDataset):
        for batch in rows.iter(batch_size=BLOCK):
            yield [dict(zip(batch, values, strict=True)) for values in zip(*batch.values(), strict=True)]
        return
    left = iter(rows)
    while block := list(itertools.islice(left, BLOCK)):
        yield block


def _removed(name: str, owner: int) -> None:
    if os.getpid() == owner:  # a forked copy does not take the file away
        os.unlink(name)
