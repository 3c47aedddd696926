"""Ranks: a group over torch.distributed."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor

from ..._errors import UserError
from ...agents.core import Learnable
from .group import Group, Value

BUCKET = 2**25
"""Numbers that are added up in one message, at least."""


class LostRankError(UserError):
    """Another rank does not answer any more."""


class Ranks(Group):
    """The processes of torch's default process group."""

    is_orderly = True

    def __init__(self) -> None:
        self.rank = dist.get_rank()
        self.size = dist.get_world_size()

    def gather(self, value: Value) -> list[Value]:
        found: list[Any] = [None] * self.size
        with self._others():
            dist.all_gather_object(found, value)
        return found

    def together(self, work: Callable[[], Value]) -> list[Value]:
        own: Exception | None = None
        try:
            outcome = _Outcome(work())
        except Exception as error:  # raised again below, here and on all other ranks
            own, outcome = error, _Outcome(None, sendable(error))
        outcomes = self.gather(outcome)
        for rank, each in enumerate(outcomes):
            if each.error is not None:
                raise own if own is not None and rank == self.rank else each.error
        return [each.value for each in outcomes]

    def union(self, found: Mapping[int, Tensor]) -> dict[int, Tensor]:
        numbers = list(found)
        values = torch.cat([found[number].reshape(-1) for number in numbers]).cpu()  # one copy, and not one for each
        pieces = values.split([found[number].numel() for number in numbers])
        merged = {
            number: piece
            for part in self.gather(dict(zip(numbers, pieces, strict=True)))
            for number, piece in part.items()
        }
        device = found[numbers[0]].device
        whole = torch.cat([merged[number] for number in sorted(merged)]).to(device)
        sizes = [merged[number].numel() for number in sorted(merged)]
        return dict(zip(sorted(merged), whole.split(sizes), strict=True))

    def add_up(self, tensors: Sequence[Tensor]) -> None:
        with self._others():
            for bucket in _buckets(tensors):
                flat = torch.cat([tensor.detach().reshape(-1) for tensor in bucket])
                dist.all_reduce(flat)
                for tensor, piece in zip(bucket, flat.split([each.numel() for each in bucket]), strict=True):
                    tensor.detach().copy_(piece.view_as(tensor))

    def spread(self, tensors: Iterable[Tensor]) -> None:
        with self._others():
            for tensor in tensors:
                whole = tensor.detach().contiguous()
                dist.broadcast(whole, 0)
                tensor.detach().copy_(whole)

    def share_out(self, learnable: Learnable, *, shards: bool) -> None:
        weights = learnable.parameters()
        self.spread(weight for weight in weights if not isinstance(weight, DTensor))
        if shards and weights:
            learnable.shard(init_device_mesh(weights[0].device.type, (self.size,)))

    @contextmanager
    def _others(self) -> Iterator[None]:
        """Say in one line that another rank is gone."""
        try:
            yield
        except RuntimeError as error:  # of torch's backends, which have no class of their own for it
            cause = str(error).strip().splitlines()[0]
            raise LostRankError(
                f"another rank is gone, as rank {self.rank} of {self.size} sees ({cause}); all ranks end here, and "
                "what is saved stays"
            ) from error


class _Outcome(NamedTuple):
    value: Any
    error: Exception | None = None


def sendable(error: Exception) -> Exception:
    """An error as other processes can have it."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # whatever somebody's class raises when it is copied
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


def _buckets(tensors: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """Tensors of one type and device that go in one message."""
    by_kind: dict[tuple[torch.dtype, torch.device], list[Tensor]] = {}
    for tensor in tensors:
        by_kind.setdefault((tensor.dtype, tensor.device), []).append(tensor)
    for alike in by_kind.values():
        bucket: list[Tensor] = []
        size = 0
        for tensor in alike:
            bucket.append(tensor)
            size += tensor.numel()
            if size >= BUCKET:
                yield bucket
                bucket, size = [], 0
        if bucket:
            yield bucket
