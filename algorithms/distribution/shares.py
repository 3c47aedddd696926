"""Parameters of a rank's optimizer: replicated weights, and the local rows of weights that FSDP2 shards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from ...agents.scoring.sharding import full, own_rows, rows_for
from .group import current


class Share:
    """Local parameters, gradients and optimizer state of a rank, for weights that FSDP2 shards or that are replicated.

    `weights` are plain tensors for the optimizer, which share memory with the parameters.
    """

    def __init__(self, parameters: Sequence[nn.Parameter]):
        self._parameters = list(parameters)
        self.weights = [
            nn.Parameter(own_rows(weight)) if isinstance(weight, DTensor) else weight for weight in parameters
        ]
        pairs = list(zip(self._parameters, self.weights, strict=True))
        self._shared = [(weight, own) for weight, own in pairs if isinstance(weight, DTensor)]
        self._whole = [weight for weight in self._parameters if not isinstance(weight, DTensor)]

    def forget_gradients(self) -> None:
        for weight in (*self._parameters, *self.weights):
            weight.grad = None

    def take_gradients(self) -> None:
        """Sum the gradients over all ranks."""
        _add_up_gradients(self._whole)
        for weight, own in self._shared:
            # FSDP2 returns the mean over ranks; the number of ranks times the mean is the sum.
            own.grad = None if weight.grad is None else own_rows(weight.grad).mul_(current().size)

    def clip(self, limit: float) -> Tensor:
        """Clip the gradients by their global L2 norm. Returns the norm before clipping."""
        norm = torch.nn.utils.get_total_norm([weight.grad for weight in self._whole if weight.grad is not None])
        if self._shared:
            rows = torch.nn.utils.get_total_norm([own.grad for _, own in self._shared if own.grad is not None])
            squared = rows.double().square()
            current().add_up([squared])
            norm = (squared + norm.to(squared.device).double().square()).sqrt().float()
        torch.nn.utils.clip_grads_with_norm_(self.weights, limit, norm)
        return norm

    def together(self, kept: dict[int, dict[str, Any]]) -> dict[int, dict[str, Any]]:
        """Gather the optimizer state of all ranks in the host memory of rank 0. Keys are indices into `weights`."""
        return {
            number: {name: self._with_all_rows(value, self._parameters[number]) for name, value in values.items()}
            for number, values in kept.items()
        }

    def apart(self, kept: dict[int, dict[str, Any]]) -> dict[int, dict[str, Any]]:
        """Return this rank's shard of an optimizer state that `together` has gathered."""
        return {
            number: {
                name: rows_for(value, weight).clone() if _is_like(value, weight) else value
                for name, value in values.items()
            }
            for number, values in kept.items()
            for weight in [self._parameters[number]]
        }

    def _with_all_rows(self, value: Any, weight: Tensor) -> Any:
        if not isinstance(weight, DTensor) or not _is_like(value, own_rows(weight)):
            return value
        rows = DTensor.from_local(
            value.to(weight.device),
            weight.device_mesh,
            weight.placements,
            run_check=False,
            shape=weight.shape,
            stride=weight.stride(),
        )
        whole = full(rows)
        return whole.cpu() if current().is_writer else whole


def _is_like(value: Any, weight: Tensor) -> bool:
    return isinstance(value, Tensor) and value.shape == weight.shape


def _add_up_gradients(parameters: Sequence[nn.Parameter]) -> None:
    group = current()
    # A gradient stays None if no rank has it, for example for unused experts.
    has = {number for number, weight in enumerate(parameters) if weight.grad is not None}
    found = []
    for number in sorted(has.union(*group.gather(has))):
        weight = parameters[number]
        if weight.grad is None:
            weight.grad = torch.zeros_like(weight)
        found.append(weight.grad)
    group.add_up(found)
