"""The key-value arena: one row of keys and values per sequence, written where the sequence stands.

Axes of a layer's store: rows, key-value heads, columns (positions of a sequence), head dimension. A sequence always
begins in column 0, so nothing is padded on the left and a token's column is its position.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin

COLUMN_BLOCK = 64  # the capacity grows in whole blocks of columns


class StopForward(Exception):
    """Raised by a cache to end a model's forward pass once it has the keys and values that were asked for.

    Whoever runs the pass catches it: `Engine.prefill`, and `SelectiveLastLayer.states` in scoring/small_models.py.
    """


@dataclass(frozen=True, slots=True)
class Placement:
    """Where the tokens of one forward pass belong, the same for every layer."""

    rows: slice | Tensor  # rows of the arena that the batch stands for, in the batch's order
    width: int  # columns that the queries may look at; 0 when every sequence begins with this pass
    batch_index: Tensor  # int64 [tokens]: the real (not padding) tokens of the pass, by batch row …
    token_index: Tensor  # … and place in that row,
    row_index: Tensor  # and where each is kept: by row …
    column_index: Tensor  # … and column of the arena
    is_filling: bool = False  # the pass only fills the arena, and ends by `StopForward`
    _flat: dict[tuple[int, int], Tensor] = field(default_factory=dict)

    def flat_index(self, num_heads: int, capacity: int) -> Tensor:
        """int64 [tokens * heads]: where each token's heads are kept in a store seen as [rows * heads * columns, d]."""
        key = num_heads, capacity
        if key not in self._flat:  # the same for most layers
            heads = torch.arange(num_heads, device=self.row_index.device)
            kept = (self.row_index[:, None] * num_heads + heads) * capacity + self.column_index[:, None]
            self._flat[key] = kept.flatten()
        return self._flat[key]


class ArenaLayer(CacheLayerMixin):
    """One layer's keys and values; the arena tells it where a pass belongs."""

    is_sliding = False

    def __init__(self, arena: Arena) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._arena = arena
        self.keys: Tensor
        self.values: Tensor

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        # Zeros, not garbage: columns behind the mask are still multiplied by a weight of 0, and 0 * NaN is NaN.
        self.keys = _empty_store(key_states, self._arena)
        self.values = _empty_store(value_states, self._arena)
        self.is_initialized = True
        self._arena.num_layouts += 1

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: object, **kwargs: object
    ) -> tuple[Tensor, Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        place = self._arena.placement
        if place.width == 0:
            # Padding lies to the right of a sequence: its columns are overwritten before any mask lets them be seen.
            self.keys[place.rows, :, : key_states.shape[2]] = key_states.to(self.keys.dtype)
            self.values[place.rows, :, : key_states.shape[2]] = value_states.to(self.values.dtype)
        else:
            for store, states in ((self.keys, key_states), (self.values, value_states)):
                new = _real(states, place).to(store.dtype)
                store.view(-1, store.shape[3]).index_copy_(
                    0, place.flat_index(*store.shape[1:3]), new.reshape(-1, store.shape[3])
                )
        if place.is_filling and self is self._arena.layers[-1]:
            raise StopForward
        if place.width == 0:
            return key_states, value_states
        return self.keys[place.rows, :, : place.width], self.values[place.rows, :, : place.width]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self._arena.placement.width or query_length, 0

    def get_seq_length(self) -> int:
        return max(self._arena.placement.width - 1, 0)

    def get_max_length(self) -> int:
        return self._arena.capacity

    def resize(self, num_rows: int, capacity: int) -> None:
        if self.is_initialized:
            self.keys = _grown(self.keys, num_rows, capacity)
            self.values = _grown(self.values, num_rows, capacity)

    def move(self, targets: Tensor, sources: Tensor, width: int) -> None:
        if not self.is_initialized:
            return
        self.keys[targets, :, :width] = self.keys[sources, :, :width]
        self.values[targets, :, :width] = self.values[sources, :, :width]


class Arena(Cache):
    """Keys and values of many sequences, of which any prefix of the rows can be a batch without a copy."""

    layers: Sequence[ArenaLayer]  # type: ignore[assignment]

    def __init__(self, num_layers: int) -> None:
        self.num_rows = 0
        self.capacity = 0  # columns
        self.num_layouts = 0  # times that keys and values came to lie elsewhere: a recorded step is of one layout
        self.placement: Placement
        super().__init__(layers=[ArenaLayer(self) for _ in range(num_layers)])

    @property
    def num_bytes(self) -> int:
        """Memory that keys and values take."""
        return sum(layer.keys.nbytes + layer.values.nbytes for layer in self.layers if layer.is_initialized)

    def columns_for(self, length: int) -> int:
        """Columns of every row, once a sequence of this length is among them."""
        return max(-(-length // COLUMN_BLOCK) * COLUMN_BLOCK, self.capacity)

    def reserve(self, num_rows: int, length: int, max_rows: int | None = None) -> None:
        """Make room for this many rows of sequences of this length; what is kept stays.

        Layers grow one after the other, so that of one store alone both the old and the new are in memory.

        Args:
            max_rows: rows behind these are given up; None: none.
        """
        old_rows = self.num_rows if max_rows is None else min(self.num_rows, max_rows)
        num_rows, capacity = max(num_rows, old_rows), self.columns_for(length)
        if (num_rows, capacity) != (self.num_rows, self.capacity):
            self.num_rows, self.capacity = num_rows, capacity
            self.num_layouts += 1
            for layer in self.layers:
                layer.resize(num_rows, capacity)

    def release(self) -> None:
        """Give the memory back; what was kept is lost."""
        self.num_rows = self.capacity = 0
        self.num_layouts += 1
        for layer in self.layers:
            layer.is_initialized = False
            layer.keys = layer.values = torch.empty(0)

    def move(self, targets: Tensor, sources: Tensor, width: int) -> None:
        """Copy the first `width` columns of row sources[i] into row targets[i], all at once, so that swaps work."""
        for layer in self.layers:
            layer.move(targets, sources, width)


def visibility(columns: Tensor, width: int, dtype: torch.dtype) -> Tensor:
    """The additive mask that lets a query at column c see columns 0..c.

    Additive, since an attention written as scores + mask would silently take True for 1.

    Args:
        columns: int64 [N, T], of the queries.

    Returns:
        [N, 1, T, width]: 0 where visible, else the least number of the type.
    """
    is_visible = torch.arange(width, device=columns.device) <= columns[:, :, None]
    hidden = torch.full((), torch.finfo(dtype).min, dtype=dtype, device=columns.device)
    return torch.where(is_visible, torch.zeros_like(hidden), hidden)[:, None]


def _real(states: Tensor, place: Placement) -> Tensor:
    """States of the real tokens: [tokens, heads, d]."""
    return states[:, :, 0] if states.shape[2] == 1 else states[place.batch_index, :, place.token_index]


def _empty_store(states: Tensor, arena: Arena) -> Tensor:
    """In the type that attention computes in: a norm with fp32 weights would leave keys in fp32 under autocast."""
    kind = states.device.type
    dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else states.dtype
    return states.new_zeros(arena.num_rows, states.shape[1], arena.capacity, states.shape[3], dtype=dtype)


def _grown(store: Tensor, num_rows: int, capacity: int) -> Tensor:
    grown = store.new_zeros(num_rows, store.shape[1], capacity, store.shape[3])
    kept = min(num_rows, len(store))
    grown[:kept, :, : store.shape[2]] = store[:kept]
    return grown
