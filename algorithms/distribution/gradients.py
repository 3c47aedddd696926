"""Gradients of data parallel learning: losses are sums over counts of the whole batch, so gradients add up."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from .group import current


def add_up_gradients(parameters: Sequence[nn.Parameter]) -> None:
    """Let every rank have the sum of all ranks' gradients.

    A weight that had no part on any rank, such as an expert that no token came to, stays without a gradient.
    """
    group = current()
    has = {number for number, weight in enumerate(parameters) if weight.grad is not None}
    found = []
    for number in sorted(has.union(*group.gather(has))):
        weight = parameters[number]
        if weight.grad is None:
            weight.grad = torch.zeros_like(weight)
        found.append(weight.grad)
    group.add_up(found)
