"""Group of processes that train together (data parallelism). A single process is a group of size 1.

All ranks run the same program with the same seeds, and split rollouts and passes. Results are gathered or summed, so
that all ranks make the same decisions.
"""

from __future__ import annotations

import pickle
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor

from ..._errors import UserError
from ...agents.core import Learnable

Value = TypeVar("Value")
BUCKET = 2**25  # Minimum number of elements per all-reduce. The last all-reduce of a dtype and device may have fewer.


class Group(ABC):
    """Process group with collective operations. All ranks must call these in the same order.

    Attributes:
        rank: rank of this process, 0 to size - 1.
        size: number of processes.
        is_orderly: True if only one thread of a process may call collective operations at a time.
    """

    rank: int = 0
    size: int = 1
    is_orderly: bool = False

    @property
    def is_writer(self) -> bool:
        """True on rank 0, which writes the run's folder and shows progress."""
        return self.rank == 0

    def shard(self, items: Sequence[Value]) -> list[Value]:
        """Return the items that this rank processes: every `size`-th item, starting at index `rank`. Not collective."""
        return list(items[self.rank :: self.size])

    @abstractmethod
    def gather(self, value: Value) -> list[Value]:
        """Return the values of all ranks, in rank order (all-gather)."""

    @abstractmethod
    def together(self, work: Callable[[], Value]) -> list[Value]:
        """Call `work` on every rank, and return the results in rank order. All ranks raise the lowest rank's error."""

    @abstractmethod
    def add_up(self, tensors: Sequence[Tensor]) -> None:
        """Sum each tensor over all ranks, in place (all-reduce). The sums are bitwise equal on all ranks."""

    @abstractmethod
    def spread(self, tensors: Iterable[Tensor]) -> None:
        """Broadcast each tensor from rank 0, in place."""

    @abstractmethod
    def share_out(self, learnable: Learnable, *, shards: bool) -> None:
        """Broadcast the weights of rank 0. If `shards` is True, each rank then keeps only a shard (FSDP2)."""

    @abstractmethod
    def union(self, found: Mapping[int, Tensor]) -> dict[int, Tensor]:
        """Merge the dicts of all ranks into one dict. The returned tensors are on this rank's device."""

    def agreed(self, value: Value) -> Value:
        return self.gather(value)[0]

    def by_writer(self, work: Callable[[], Value]) -> Value:
        """Call `work` on rank 0 while the other ranks wait. All ranks return its result or raise its error."""
        if self.is_writer:
            return self.together(work)[0]
        results: list[Any] = self.together(lambda: None)
        result: Value = results[0]
        return result


class Alone(Group):
    def gather(self, value: Value) -> list[Value]:
        return [value]

    def together(self, work: Callable[[], Value]) -> list[Value]:
        return [work()]

    def union(self, found: Mapping[int, Tensor]) -> dict[int, Tensor]:
        return dict(found)

    def add_up(self, tensors: Sequence[Tensor]) -> None:
        pass

    def spread(self, tensors: Iterable[Tensor]) -> None:
        pass

    def share_out(self, learnable: Learnable, *, shards: bool) -> None:
        pass


class LostRankError(UserError):
    """Error of a rank that lost the connection to another rank."""


class Ranks(Group):
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
        result: Any = None
        try:
            result = work()
        except Exception as error:  # raised below on all ranks, after they have exchanged their results
            own = error
        outcomes = self.gather((result, None if own is None else sendable(own)))
        for rank, (_, failure) in enumerate(outcomes):
            if failure is not None:
                raise own if own is not None and rank == self.rank else failure
        return [value for value, _ in outcomes]

    def union(self, found: Mapping[int, Tensor]) -> dict[int, Tensor]:
        numbers = list(found)
        values = torch.cat([found[number].reshape(-1) for number in numbers]).cpu()  # one copy to the host
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
        try:
            yield
        except torch.OutOfMemoryError:  # a subclass of RuntimeError: this rank failed, no other rank is lost
            raise
        except RuntimeError as error:  # torch has no error class for lost connections
            cause = str(error).strip().splitlines()[0]
            raise LostRankError(
                f"rank {self.rank} of {self.size} lost the connection to another rank ({cause}); all ranks stop, and "
                "saved files are kept"
            ) from error


def sendable(error: Exception) -> Exception:
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # raised by the error's class when it is pickled
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


def _buckets(tensors: Sequence[Tensor]) -> Iterator[list[Tensor]]:
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


def current() -> Group:
    return _current[-1]


@contextmanager
def member(group: Group) -> Iterator[Group]:
    """Set the process group that `current` returns inside the block."""
    _current.append(group)
    try:
        yield group
    finally:
        _current.remove(group)


_current: list[Group] = [Alone()]
