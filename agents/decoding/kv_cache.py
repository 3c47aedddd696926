"""The decoder's KV cache, with one row per sequence, and attention to it.

Axes of a layer's keys and values: rows, key-value heads, columns (positions of a sequence), head dimension. A sequence
starts in column 0, so there is no padding on the left, and the column of a token is its position.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import AttentionInterface, PreTrainedModel
from transformers.cache_utils import Cache, CacheLayerMixin
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from .cpu import attend

COLUMN_BLOCK = 64  # the number of columns is a multiple of this


class StopForward(Exception):
    """Raised by a KV cache to end a model's forward pass when all keys and values are stored. Callers catch it."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Rows and columns of the cache for the tokens of one forward pass, the same for every layer."""

    rows: slice | Tensor  # cache rows, in the order of the batch
    width: int  # number of columns that queries attend to; 0 if all sequences start in this pass
    batch_index: Tensor  # int64 [tokens]: batch row of each token that is not padding
    token_index: Tensor  # int64 [tokens]: index of the token in its batch row
    row_index: Tensor  # int64 [tokens]: cache row that stores the token
    column_index: Tensor  # int64 [tokens]: cache column that stores the token
    is_filling: bool = False  # True in prefill, which ends with `StopForward`
    _flat: dict[tuple[int, int], Tensor] = field(default_factory=dict)

    def flat_index(self, num_heads: int, capacity: int) -> Tensor:
        """Return indices [tokens * heads] of each token and head into keys viewed as [rows * heads * columns, d]."""
        key = num_heads, capacity
        if key not in self._flat:  # computed once for all layers of equal sizes
            heads = torch.arange(num_heads, device=self.row_index.device)
            kept = (self.row_index[:, None] * num_heads + heads) * capacity + self.column_index[:, None]
            self._flat[key] = kept.flatten()
        return self._flat[key]


class ArenaLayer(CacheLayerMixin):
    """Keys and values of one model layer in the KV cache."""

    is_sliding = False

    def __init__(self, arena: Arena) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._arena = arena
        self.keys: Tensor
        self.values: Tensor

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        # Filled with zeros, because attention multiplies masked columns by 0, and 0 * NaN would be NaN.
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
            # Padding on the right is also stored. Masks hide these columns until real tokens overwrite the padding.
            self.keys[place.rows, :, : key_states.shape[2]] = key_states.to(self.keys.dtype)
            self.values[place.rows, :, : key_states.shape[2]] = value_states.to(self.values.dtype)
        else:
            for store, states in ((self.keys, key_states), (self.values, value_states)):
                is_step = states.shape[2] == 1  # one token per row, without padding
                new = states[:, :, 0] if is_step else states[place.batch_index, :, place.token_index]
                store.view(-1, store.shape[3]).index_copy_(
                    0, place.flat_index(*store.shape[1:3]), new.to(store.dtype).reshape(-1, store.shape[3])
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
    """KV cache of many sequences. A batch is a view of its first rows, without a copy."""

    layers: Sequence[ArenaLayer]  # type: ignore[assignment]

    def __init__(self, num_layers: int) -> None:
        self.num_rows = 0
        self.capacity = 0  # columns
        self.num_layouts = 0  # number of changes of memory addresses; each change makes recorded steps invalid
        self.placement: Placement
        super().__init__(layers=[ArenaLayer(self) for _ in range(num_layers)])

    @property
    def num_bytes(self) -> int:
        return sum(layer.keys.nbytes + layer.values.nbytes for layer in self.layers if layer.is_initialized)

    def columns_for(self, length: int) -> int:
        """Return the number of columns that the cache needs for sequences of this length."""
        return max(-(-length // COLUMN_BLOCK) * COLUMN_BLOCK, self.capacity)

    def reserve(self, num_rows: int, length: int, max_rows: int | None = None) -> None:
        """Allocate rows for sequences of this length. Stored sequences are kept, except in rows after `max_rows`."""
        old_rows = self.num_rows if max_rows is None else min(self.num_rows, max_rows)
        num_rows, capacity = max(num_rows, old_rows), self.columns_for(length)
        if (num_rows, capacity) != (self.num_rows, self.capacity):
            self.num_rows, self.capacity = num_rows, capacity
            self.num_layouts += 1
            for layer in self.layers:  # one by one, so that only one tensor at a time is in memory twice
                layer.resize(num_rows, capacity)

    def release(self) -> None:
        """Release the memory. Stored sequences are lost."""
        self.num_rows = self.capacity = 0
        self.num_layouts += 1
        for layer in self.layers:
            layer.is_initialized = False
            layer.keys = layer.values = torch.empty(0)

    def move(self, targets: Tensor, sources: Tensor, width: int) -> None:
        """Copy the first `width` columns of row sources[i] to row targets[i], for all i at the same time."""
        for layer in self.layers:
            layer.move(targets, sources, width)


def visibility(columns: Tensor, width: int, dtype: torch.dtype) -> Tensor:
    """Return the causal mask [N, 1, T, width] for queries in `columns` [N, T]: 0 for visible columns, else the lowest
    number of the dtype. The mask is not boolean, because some attention functions add the mask to the scores."""
    is_visible = torch.arange(width, device=columns.device) <= columns[:, :, None]
    hidden = torch.full((), torch.finfo(dtype).min, dtype=dtype, device=columns.device)
    return torch.where(is_visible, torch.zeros_like(hidden), hidden)[:, None]


def _empty_store(states: Tensor, arena: Arena) -> Tensor:
    # Autocast's dtype, because norms with fp32 weights return fp32 keys in autocast.
    kind = states.device.type
    dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else states.dtype
    return states.new_zeros(arena.num_rows, states.shape[1], arena.capacity, states.shape[3], dtype=dtype)


def _grown(store: Tensor, num_rows: int, capacity: int) -> Tensor:
    grown = store.new_zeros(num_rows, store.shape[1], capacity, store.shape[3])
    kept = min(num_rows, len(store))
    grown[:kept, :, : store.shape[2]] = store[:kept]
    return grown


NAME = "collm_sdpa"


def attention_to_kept(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **kwargs: Any
) -> tuple[Tensor, None]:
    """Compute the same attention as transformers' `sdpa`, but faster on a CPU and without copies of shared keys.

    Several query heads may share a key-value head (grouped-query attention, arXiv:2305.13245).
    Axes: N rows, H query heads, K key-value heads, T new tokens, W columns, d head dimension.

    Args:
        query: [N, H, T, d].
        key: [N, K, W, d]; the same for `value`.
        attention_mask: [N, 1, T, W], added to the scores. None, or a mask per head: transformers' `sdpa` is used.

    Returns:
        [N, T, H, d], and None instead of attention weights.
    """
    num_rows, num_heads, num_tokens, width = query.shape
    num_kept = key.shape[1]
    if attention_mask is None or attention_mask.shape[1] != 1 or kwargs.get("position_bias") is not None:
        return _by_transformers(module, query, key, value, attention_mask, **kwargs)
    dropout, scale = kwargs.get("dropout", 0.0), kwargs.get("scaling")
    if dropout == 0:
        output = attend(query, key, value, attention_mask, width**-0.5 if scale is None else scale)
        if output is not None:
            return output, None
    # On devices other than a CPU, torch stores all attention scores if heads share keys and there is a mask.
    if num_heads == num_kept or (num_tokens > 1 and query.device.type != "cpu"):
        return _by_transformers(module, query, key, value, attention_mask, **kwargs)
    options = {"dropout_p": dropout, "scale": scale}
    if num_tokens > 1:
        output = functional.scaled_dot_product_attention(query, key, value, attention_mask, enable_gqa=True, **options)
        return output.transpose(1, 2).contiguous(), None
    # Query heads that share a key-value head become rows of one attention call.
    group = query.reshape(num_rows, num_kept, num_heads // num_kept, width)
    output = functional.scaled_dot_product_attention(group, key, value, attention_mask, **options)
    return output.reshape(num_rows, 1, num_heads, -1), None


def _by_transformers(*args: Any, **kwargs: Any) -> tuple[Tensor, None]:
    attended: tuple[Tensor, None] = sdpa_attention_forward(*args, **kwargs)
    return attended


AttentionInterface.register(NAME, attention_to_kept)


@contextmanager
def own_attention(base: PreTrainedModel) -> Iterator[None]:
    """Context manager in which the model uses `attention_to_kept` if it is faster. Forward passes must have a mask."""
    # Forward passes of other threads may use both functions, which give the same result.
    config = base.config.get_text_config(decoder=True)
    num_heads = getattr(config, "num_attention_heads", None)
    is_shared = getattr(config, "num_key_value_heads", None) not in (None, num_heads)
    if config._attn_implementation != "sdpa" or not (is_shared or base.device.type == "cpu"):
        yield
        return
    config._attn_implementation = NAME
    try:
        yield
    finally:
        config._attn_implementation = "sdpa"
