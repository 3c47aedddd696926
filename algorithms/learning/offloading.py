"""Offloading to host memory: weights of models that are not in use, and AdamW's moments between steps."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

HOST = torch.device("cpu")


def to_host(tensor: Tensor) -> Tensor:
    """Copy a tensor to host memory, pinned if the tensor is on a GPU."""
    if tensor.device == HOST:
        return tensor
    return torch.empty_like(tensor, device=HOST, pin_memory=tensor.device.type == "cuda").copy_(tensor)


class WeightOffloader:
    """Offloader that keeps the weights of some models on their device, and all other weights in host memory.

    A weight that several models share is on its device if one of these models is.
    """

    def __init__(self, weights: Mapping[Hashable, Iterable[nn.Parameter]]):
        self._weights = {model: list(own) for model, own in weights.items()}
        self._homes = {weight: weight.device for own in self._weights.values() for weight in own}

    def only(self, models: Iterable[Hashable]) -> None:
        """Move the weights of all other models to host memory, then the weights of these models to their device."""
        here = {weight for model in models for weight in self._weights[model]}
        for weight in self._homes:
            if weight not in here:
                weight.data = to_host(weight.data)
        for weight in here:
            weight.data = weight.data.to(self._homes[weight], non_blocking=True)

    @contextmanager
    def on_device(self, models: Iterable[Hashable], afterwards: Iterable[Hashable]) -> Iterator[None]:
        """Keep only the weights of `models` on their device inside the block, and then only those of `afterwards`."""
        self.only(models)
        yield
        self.only(afterwards)


@contextmanager
def moments_on_device(adamw: torch.optim.Optimizer) -> Iterator[None]:
    """Keep AdamW's moments on the device inside the block, and in host memory after the block."""
    for weight, moments in adamw.state.items():
        for name, value in moments.items():
            moments[name] = value.to(weight.device, non_blocking=True)
    yield
    for moments in adamw.state.values():
        for name, value in moments.items():
            moments[name] = to_host(value)
