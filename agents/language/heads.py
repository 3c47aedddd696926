"""Value heads of critics and score heads of reward models, in fp32."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from ..decoding.cpu import is_plain_linear


class HeadLayer(nn.Linear):
    """Linear layer that computes in fp32 even under autocast, because bf16 has steps of 0.5 near 100."""

    def forward(self, input: Tensor) -> Tensor:
        with torch.autocast(input.device.type, enabled=False):
            return super().forward(input.float())


def value_head(size: int, hidden_dim: int | None, num_values: int = 1) -> nn.Module:
    """Return a head that reads states [N, size], with a tanh layer if `hidden_dim` is set. Values start at 0."""
    last = HeadLayer(hidden_dim or size, num_values)
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)
    return last if hidden_dim is None else nn.Sequential(HeadLayer(size, hidden_dim), nn.Tanh(), last)


def keep_head_precise(model: PreTrainedModel) -> None:
    """Replace the one-output layer of a sequence classifier by a `HeadLayer` with the same weights."""
    for name, layer in list(model.named_modules()):
        if is_plain_linear(layer) and layer.out_features == 1:
            precise = HeadLayer(layer.in_features, 1, bias=layer.bias is not None)
            precise.weight, precise.bias = layer.weight, layer.bias
            model.set_submodule(name, precise)
