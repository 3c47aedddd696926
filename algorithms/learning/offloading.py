"""Weight offloading: weights that are not in use move to host memory."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping

import torch
from torch import Tensor, nn

HOST = torch.device("cpu")


def to_host(tensor: Tensor) -> Tensor:
    """Copy of a tensor in host memory, pinned if it comes from a GPU."""
    if tensor.device == HOST:
        return tensor
    return torch.empty_like(tensor, device=HOST, pin_memory=tensor.device.type == "cuda").copy_(tensor)


class WeightOffloader:
    """Keeps the weights of some models on their device, and those of the other models in host memory.

    Args:
        weights: weights by model. A weight that two models share is on its device if one of them is.
    """

    def __init__(self, weights: Mapping[Hashable, Iterable[nn.Parameter]]):
        self._weights = {model: list(own) for model, own in weights.items()}
        self._homes = {weight: weight.device for own in self._weights.values() for weight in own}

    def only(self, models: Iterable[Hashable]) -> None:
        """Move the weights of all other models to host memory, then those of these models to their device."""
        here = {weight for model in models for weight in self._weights[model]}
        for weight in self._homes:
            if weight not in here:
                weight.data = to_host(weight.data)
        for weight in here:
            weight.data = weight.data.to(self._homes[weight], non_blocking=True)
