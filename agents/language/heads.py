"""Value heads and score heads, in fp32."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from ..decoding.cpu import is_plain_linear


class HeadLayer(nn.Linear):
    """Linear layer in fp32, also inside autocast: bf16 numbers near 100 differ by at least 0.5."""

    def forward(self, input: Tensor) -> Tensor:
        with torch.autocast(input.device.type, enabled=False):
            return super().forward(input.float())


def value_head_of(model: PreTrainedModel, hidden_dim: int | None) -> nn.Module:
    """Return a linear head with or without a tanh layer. Initial values are 0, so that advantages are returns."""
    size = model.config.get_text_config().hidden_size
    last = HeadLayer(hidden_dim or size, 1)
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)
    head = last if hidden_dim is None else nn.Sequential(HeadLayer(size, hidden_dim), nn.Tanh(), last)
    return head.to(model.device)


def keep_head_precise(model: PreTrainedModel) -> None:
    """Replace a sequence classifier's layer with one output by a `HeadLayer` with its weights."""
    for name, layer in list(model.named_modules()):
        if is_plain_linear(layer) and layer.out_features == 1:
            precise = HeadLayer(layer.in_features, 1, bias=layer.bias is not None)
            precise.weight, precise.bias = layer.weight, layer.bias
            model.set_submodule(name, precise)
