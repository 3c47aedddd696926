"""Heads that say one number per hidden state: values and scores, in fp32 whatever the model computes in."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from ..decoding.cpu import is_plain_linear


class HeadLayer(nn.Linear):
    """A linear layer in fp32, inside autocast too: in bf16 two values of 100 could not differ by less than a half."""

    def forward(self, input: Tensor) -> Tensor:
        with torch.autocast(input.device.type, enabled=False):
            return super().forward(input.float())


def value_head_of(model: PreTrainedModel, hidden_dim: int | None) -> nn.Module:
    """V = w · hidden + b, or with a tanh layer before; from zero: the first advantages are returns, not noise."""
    size = model.config.get_text_config().hidden_size
    last = HeadLayer(hidden_dim or size, 1)
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)
    head = last if hidden_dim is None else nn.Sequential(HeadLayer(size, hidden_dim), nn.Tanh(), last)
    return head.to(model.device)


def keep_head_precise(model: PreTrainedModel) -> None:
    """Let the layer that makes a sequence classifier's one number be a `HeadLayer`, with its weights as they are."""
    for name, layer in list(model.named_modules()):
        if is_plain_linear(layer) and layer.out_features == 1:
            precise = HeadLayer(layer.in_features, 1, bias=layer.bias is not None)
            precise.weight, precise.bias = layer.weight, layer.bias
            model.set_submodule(name, precise)
