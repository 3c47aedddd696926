"""Assignment of rows of the KV cache to sequences. Active rows come first, so that a batch is a view of the cache. Free
rows and parked rows, which keep a sequence for a later turn, follow."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .samples import Prompt


@dataclass(frozen=True, slots=True)
class Claim:
    """Prompt that waits for a row of the KV cache."""

    owner: int  # index of the prompt in the call of `generate`
    prompt: Prompt

    @property
    def ids(self) -> NDArray[np.int64]:
        return np.asarray(self.prompt.ids, np.int64)


@dataclass(frozen=True, slots=True)
class Seat:
    """Prompt (claim) with its assigned row of the KV cache."""

    claim: Claim
    row: int
    num_kept: int  # number of leading columns that already contain the prompt's keys and values


@dataclass(frozen=True, slots=True)
class Moves:
    """Copies of cache rows: row sources[i] is copied to row targets[i], for all i at the same time."""

    targets: NDArray[np.int64]
    sources: NDArray[np.int64]
    width: int  # number of leading columns to copy


class SlotTable:
    """State of the KV cache's rows: active, parked or free. The public arrays describe the active rows."""

    def __init__(self, max_rows: int) -> None:
        self.num_active = 0
        self.owner = np.zeros(max_rows, np.int64)  # index of the prompt in the call of `generate`
        self.start = np.zeros(max_rows, np.int64)  # column of the last prompt token
        self.column = np.zeros(max_rows, np.int64)  # next column to write; all earlier columns are stored
        self.end = np.zeros(max_rows, np.int64)  # column at which the completion has max_new_tokens tokens
        self.token = np.zeros(max_rows, np.int64)  # last token of the prompt
        self.previous = np.full(max_rows, -1)  # row that sampled the input token in the last step; -1: use `token`
        self.max_rows = max_rows
        self._keys: list[Hashable | None] = [None] * max_rows
        self._parked: dict[Hashable, int] = {}  # key → row, oldest first
        self._ids: dict[Hashable, NDArray[np.int64]] = {}  # token ids of parked rows
        self._rows = np.arange(max_rows)
        self._source = self._rows.copy()  # row that contains this row's data until the copies are done

    def admit(self, claims: Sequence[Claim], wanted: Collection[Hashable]) -> list[Seat]:
        """Assign an inactive row to each prompt (claim). Cached sequences with a key in `wanted` are evicted last."""
        first, last = self.num_active, self.num_active + len(claims)
        kept = [self._num_kept(claim) for claim in claims]
        vacant = set(range(first, last))
        for claim, count in zip(claims, kept, strict=True):
            if count:
                vacant.discard(self._parked[claim.prompt.key])
            elif claim.prompt.key is not None:
                self._drop(claim.prompt.key)
        queue = sorted(vacant, reverse=True)
        seats = []
        for claim, count in sorted(zip(claims, kept, strict=True), key=lambda pair: pair[1] == 0):
            ids, key = claim.ids, claim.prompt.key
            if count:
                row = self._parked[key]
                if not first <= row < last:
                    target = queue.pop()
                    self._swap(row, target)
                    row = target
                del self._parked[key], self._ids[key]
            else:
                row = queue.pop()
                self._clear(row, last, wanted)
                self._source[row] = row
            self._keys[row] = key
            self.owner[row] = claim.owner
            self.start[row] = self.column[row] = len(ids) - 1
            self.end[row] = len(ids) - 1 + claim.prompt.max_new_tokens
            self.token[row], self.previous[row] = ids[-1], -1
            seats.append(Seat(claim, row, count))
        self.num_active = last
        return seats

    def limit(self, num_rows: int | None) -> None:
        """Use only the first `num_rows` rows (None: all rows), and drop the sequences in other rows."""
        self.max_rows = len(self._rows) if num_rows is None else min(num_rows, len(self._rows))
        for key in [key for key, row in self._parked.items() if row >= self.max_rows]:
            self._drop(key)

    @property
    def width(self) -> int:
        """Number of columns that the next decoding step reads or writes."""
        return int(self.column[: self.num_active].max()) + 1

    @property
    def num_parked(self) -> int:
        return len(self._parked)

    @property
    def num_used(self) -> int:
        """Number of rows that the KV cache needs for all active and parked sequences."""
        return max([self.num_active - 1, *self._parked.values()]) + 1

    def retire(self, rows: Sequence[int]) -> None:
        """End the completions in active rows. Rows with a cache key become parked, other rows become free."""
        for row in sorted(rows, reverse=True):
            self.num_active -= 1
            self._swap(row, self.num_active)
            key = self._keys[self.num_active]
            if key is not None:
                self._parked[key] = self.num_active

    def remember(self, key: Hashable, ids: NDArray[np.int64]) -> None:
        """Store the token ids of the parked row with this key, unless the row was evicted."""
        if key in self._parked:
            self._ids[key] = ids

    def clear(self) -> None:
        self.num_active = 0
        self._keys = [None] * len(self._rows)
        self._parked.clear()
        self._ids.clear()
        self._source = self._rows.copy()

    def take_moves(self) -> Moves | None:
        """Return the pending copies between rows of the KV cache, and mark them as done."""
        targets = np.flatnonzero(self._source != self._rows)
        if not len(targets):
            return None
        sources = self._source[targets]
        self._source[targets] = targets
        is_held = (targets < self.num_active) | np.array([self._keys[row] is not None for row in targets])
        if not is_held.any():
            return None
        targets, sources = targets[is_held], sources[is_held]
        return Moves(targets, sources, int(self.column[targets].max()))

    def _num_kept(self, claim: Claim) -> int:
        """Return the number of leading prompt tokens, except the last one, whose keys and values are in the cache."""
        key = claim.prompt.key
        kept = None if key is None else self._ids.get(key)
        if kept is None:
            return 0
        ids = claim.ids
        length = min(len(kept), len(ids) - 1)
        differs = np.flatnonzero(kept[:length] != ids[:length])
        return int(differs[0]) if len(differs) else length

    def _clear(self, row: int, outside: int, wanted: Collection[Hashable]) -> None:
        """Free a row. Move its parked sequence to a free row >= `outside`, or evict the oldest parked sequence."""
        key = self._keys[row]
        if key is None:
            return
        for other in range(outside, self.max_rows):
            if self._keys[other] is None:
                self._swap(row, other)
                return
        oldest = next((old for old, place in self._parked.items() if place >= outside and old not in wanted), key)
        if key not in wanted and list(self._parked).index(key) < list(self._parked).index(oldest):
            oldest = key
        place = self._parked[oldest]
        self._drop(oldest)
        self._swap(row, place)

    def _drop(self, key: Hashable) -> None:
        row = self._parked.pop(key, None)
        if row is not None:
            self._keys[row] = None
            self._ids.pop(key, None)

    def _swap(self, row: int, other: int) -> None:
        if row == other:
            return
        for array in (self.owner, self.start, self.column, self.end, self.token, self.previous, self._source):
            array[row], array[other] = array[other], array[row]
        self._keys[row], self._keys[other] = self._keys[other], self._keys[row]
        for place in (row, other):
            key = self._keys[place]
            if key in self._parked:
                self._parked[key] = place
