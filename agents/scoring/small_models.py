"""Only for small models, the last layer's output at selected tokens.

The last layer needs every token's keys and values, but its output only where a value or a prediction is read. Leaving
the rest out saves almost half of the work of a model of two layers, and next to nothing of one of 28.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer

from ..batching import sent
from ..decoding.base import computing_type
from ..decoding.kv_cache import StopForward, visibility
from ..decoding.self_check import FAILURES, tolerance

Ids = NDArray[np.int64]
MAX_SHARE = 0.8
"""Where more of the tokens are read, a second pass through a layer's norm and queries costs more than it saves."""


@dataclass(frozen=True, slots=True)
class Readout:
    """Tokens to be read. Axes: R rows of a batch, S most tokens read in one of them."""

    positions: Ids
    """[R, S] places in the rows, ascending; 0 where a row has fewer to read."""
    keys: Ids
    """[M] row * width + place of what is read, ascending."""
    width: int
    """Tokens of the longest row."""

    @classmethod
    def of(cls, wanted: Sequence[Ids], num_rows: int, width: int) -> Readout:
        """The readout of rows and places [2, any number of them]: each token once, however often it is asked for."""
        keys = np.unique(np.concatenate([rows * width + places for rows, places in wanted]))
        rows = keys // width
        rank = np.arange(len(keys)) - np.searchsorted(rows, rows)
        positions = np.zeros((num_rows, int(rank.max()) + 1), dtype=np.int64)
        positions[rows, rank] = keys % width
        return cls(positions, keys, width)

    def found(self, wanted: Ids) -> Ids:
        """[2, K] row and place among those read, of tokens [2, K] by row and place."""
        start = wanted[0] * self.width
        ranks = np.searchsorted(self.keys, start + wanted[1]) - np.searchsorted(self.keys, start)
        return np.stack([wanted[0], ranks])


class SelectiveLastLayer:
    """Runs a transformers model without a head, its last layer for selected tokens only.

    Args:
        backbone: the model, which is left as it is.

    Raises:
        ValueError: if the model has no layer of the usual kind, or an attention that takes no masks.
    """

    def __init__(self, backbone: PreTrainedModel):
        layers = [module for module in backbone.modules() if isinstance(module, GradientCheckpointingLayer)]
        attention = None if not layers else backbone.config.get_text_config(decoder=True)._attn_implementation
        if not layers or attention not in ("sdpa", "eager"):
            raise ValueError(f"{type(backbone).__name__} has no layers to tell apart, or {attention} takes no masks")
        self.backbone = backbone
        self.layer: nn.Module = layers[-1]

    def states(self, inputs: Mapping[str, Any], readout: Readout) -> Tensor:
        """[R, S, d] last hidden states of the tokens that are read.

        Args:
            inputs: the model's, for rows padded on the right.

        Raises:
            ValueError: if the last layer is not called with its states alone and the rest by name.
        """
        positions = sent(readout.positions, inputs["input_ids"].device)

        def select(layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            if len(args) != 1 or "past_key_values" not in kwargs:
                raise ValueError(f"{type(layer).__name__} is called in a way of its own")
            cache = _OneLayerCache()
            with suppress(StopForward):
                type(layer).forward(layer, *args, **kwargs | {"past_key_values": cache})
            selected = _arguments_at(kwargs, positions, args[0])
            return (_gathered(args[0], positions),), selected | {"past_key_values": cache}

        handle = self.layer.register_forward_pre_hook(select, with_kwargs=True)
        try:
            states: Tensor = self.backbone(**inputs).last_hidden_state
        finally:
            handle.remove()
        return states


def selective_last_layer(backbone: PreTrainedModel) -> SelectiveLastLayer | None:
    """The model's, if on a few tokens it gives the states of a whole pass; else None."""
    try:
        selective = SelectiveLastLayer(backbone)
        difference, scale = _largest_difference(selective)
    except FAILURES:
        return None
    return selective if difference <= tolerance(computing_type(backbone)) * scale else None


def states_at(
    backbone: PreTrainedModel, inputs: Mapping[str, Any], wanted: Sequence[Ids], selective: SelectiveLastLayer | None
) -> list[Tensor]:
    """[K, d] last hidden states at each selection of tokens.

    Args:
        inputs: the model's, for rows padded on the right.
        wanted: [2, K] rows and places of each selection.
        selective: the model's selective last layer; None where the model must be run whole.
    """
    num_rows, width = inputs["input_ids"].shape
    readout = Readout.of(wanted, num_rows, width)
    if selective is None or readout.positions.shape[1] > MAX_SHARE * width:
        whole: Tensor = backbone(**inputs).last_hidden_state
        return [at(whole, each) for each in wanted]
    states = selective.states(inputs, readout)
    return [at(states, readout.found(each)) for each in wanted]


def at(states: Tensor, wanted: Ids) -> Tensor:
    """[K, d] of [R, L, d], at rows and places [2, K]."""
    index = sent(wanted, states.device)
    return states[index[0], index[1]]


@torch.no_grad()
def _largest_difference(selective: SelectiveLastLayer) -> tuple[float, float]:
    """Largest difference of a state, and the largest state."""
    backbone = selective.backbone
    size = backbone.config.get_text_config(decoder=True).vocab_size
    inputs = {"input_ids": (torch.arange(24, device=backbone.device) * 5 + 3).view(2, 12) % size, "use_cache": False}
    wanted = np.array([[0, 0, 1, 1, 1], [4, 11, 0, 7, 11]])
    readout = Readout.of([wanted], 2, 12)
    whole = at(backbone(**inputs).last_hidden_state, wanted)
    selected = at(selective.states(inputs, readout), readout.found(wanted))
    return float((whole - selected).abs().max()), float(whole.abs().max())


class _OneLayerCache:
    """Stands in for a cache: takes the keys and values of all tokens, and then gives them for those of a few."""

    def __init__(self) -> None:
        self.states: tuple[Tensor, Tensor] | None = None

    def update(self, keys: Tensor, values: Tensor, *args: object, **kwargs: object) -> tuple[Tensor, Tensor]:
        if self.states is None:
            self.states = keys, values
            raise StopForward
        return self.states


def _arguments_at(kwargs: Mapping[str, Any], positions: Tensor, states: Tensor) -> dict[str, Any]:
    """What a layer is told of its tokens, for some of them: their mask, places, and what is made from the places."""
    selected = dict(kwargs)
    mask = kwargs.get("attention_mask")
    if mask is None:
        selected["attention_mask"] = visibility(positions, states.shape[1], states.dtype)
    else:
        rows = torch.arange(len(positions), device=positions.device)[:, None]
        selected["attention_mask"] = mask.expand(len(positions), -1, -1, -1)[rows, :, positions].transpose(1, 2)
    if kwargs.get("position_ids") is not None:
        selected["position_ids"] = kwargs["position_ids"].expand(len(positions), -1).gather(1, positions)
    if kwargs.get("position_embeddings") is not None:
        selected["position_embeddings"] = tuple(_gathered(part, positions) for part in kwargs["position_embeddings"])
    return selected


def _gathered(states: Tensor, positions: Tensor) -> Tensor:
    """[R, S, d] of [R, L, d], or of [1, L, d] that is alike for all rows."""
    index = positions[:, :, None].expand(-1, -1, states.shape[-1])
    return states.expand(len(positions), -1, -1).gather(1, index)
