"""A cache that keeps nothing, for passes on a GPU that are to begin before the earlier ones are done.

Without a mask and without a cache, transformers looks into the positions for several sequences in one row, and the host
waits for the answer. With a cache it does not ask.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor
from transformers import PreTrainedModel
from transformers.cache_utils import Cache, CacheLayerMixin


class _NoLayer(CacheLayerMixin):
    """Gives back what it is given."""

    is_sliding = False

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        pass

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: object, **kwargs: object
    ) -> tuple[Tensor, Tensor]:
        return key_states, value_states

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return query_length, 0

    def get_seq_length(self) -> int:
        return 0

    def get_max_length(self) -> int:
        return -1


class NoCache(Cache):
    """Gives every layer of a model its own keys and values back."""

    def __init__(self, num_layers: int) -> None:
        super().__init__(layers=[_NoLayer() for _ in range(num_layers)])  # type: ignore[no-untyped-call]


def with_no_cache(backbone: PreTrainedModel, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """A model's inputs, with such a cache where the host would wait without one."""
    if inputs["input_ids"].device.type == "cpu" or "attention_mask" in inputs or not _has_plain_layers(backbone):
        return dict(inputs)
    num_layers = backbone.config.get_text_config(decoder=True).num_hidden_layers
    return {**inputs, "past_key_values": NoCache(num_layers)}


def _has_plain_layers(backbone: PreTrainedModel) -> bool:
    """Whether all its layers attend to everything, so that one kind of layer of a cache serves them."""
    config = backbone.config.get_text_config(decoder=True)
    kinds = getattr(config, "layer_types", None) or ["full_attention"]
    return set(kinds) == {"full_attention"} and getattr(config, "sliding_window", None) is None
