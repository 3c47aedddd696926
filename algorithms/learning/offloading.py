"""Offload: weights that nobody computes with wait in host memory, so that learners take turns on one device."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

HOST = torch.device("cpu")


def to_host(tensor: Tensor) -> Tensor:
    """A tensor in host memory, pinned where a GPU is to fetch it."""
    if tensor.device == HOST:
        return tensor
    return torch.empty_like(tensor, device=HOST, pin_memory=tensor.device.type == "cuda").copy_(tensor)


class Turns:
    """Sets of weights of which some are on their device and the others in host memory.

    Args:
        weights: by owner; a weight of several owners is there for each of them.
        moves: False leaves all where they are.
    """

    def __init__(self, weights: Mapping[int, Iterable[nn.Parameter]], *, moves: bool):
        self.moves = moves
        self._weights = {owner: list(own) for owner, own in weights.items()} if moves else {}
        self._homes = {weight: weight.device for own in self._weights.values() for weight in own}

    def only(self, owners: Iterable[int]) -> None:
        """Bring the weights of these owners to their devices, after the others have left."""
        here = {weight for owner in owners for weight in self._weights.get(owner, ())}
        for weight in self._homes:
            if weight not in here:
                weight.data = to_host(weight.data)
        for weight in here:
            weight.data = weight.data.to(self._homes[weight], non_blocking=True)

    @contextmanager
    def turn(self, owners: Iterable[int], then: Iterable[int]) -> Iterator[None]:
        """Have the weights of some owners on their devices inside the block, and those of others after it."""
        self.only(owners)
        yield
        self.only(then)
