"""Weights cast once: copies of linear layers' weights in the type that autocast multiplies in, at addresses that stay.

Autocast keeps such copies only until its context ends. A recorded step would read them after that; without them it
would cast every weight anew, which takes several times as long as reading the copies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import torch
from torch import Tensor, nn
from torch.nn import functional


class CastWeights:
    """The copies of a model's plain linear layers; other layers are left to autocast.

    Args:
        model: the model.
        dtype: what autocast casts to.
    """

    def __init__(self, model: nn.Module, dtype: torch.dtype) -> None:
        self.dtype = dtype
        self._layers = [
            (layer, layer.weight.to(dtype), None if layer.bias is None else layer.bias.to(dtype))
            for layer in model.modules()
            if type(layer) is nn.Linear and layer.weight.dtype != dtype and "forward" not in vars(layer)
        ]

    @property
    def num_bytes(self) -> int:
        """Memory that the copies take."""
        return sum(weight.nbytes + (0 if bias is None else bias.nbytes) for _, weight, bias in self._layers)

    @contextmanager
    def acting(self) -> Iterator[None]:
        """Bring the copies up to date, and let the layers multiply by them inside the block."""
        with ExitStack() as stack:
            for layer, weight, bias in self._layers:
                weight.copy_(layer.weight)
                if bias is not None:
                    bias.copy_(layer.bias)
                vars(layer)["forward"] = _product(weight, bias)
                stack.callback(vars(layer).pop, "forward")
            yield


def _product(weight: Tensor, bias: Tensor | None) -> Callable[[Tensor], Tensor]:
    def forward(x: Tensor) -> Tensor:
        return functional.linear(x, weight, bias)  # autocast casts x

    return forward
