"""Group of processes that train together (data parallelism).

All ranks run the same program with the same seeds, and split the work: rollouts, and forward and backward passes.
Results are gathered or summed, so that all ranks make the same decisions. A single process is a group of size 1.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from torch import Tensor

from ...agents.core import Learnable

Value = TypeVar("Value")


class Group(ABC):
    """Process group with collective operations: all ranks must call them in the same order. `shard` is local.

    Attributes:
        rank: rank of this process, 0 to size - 1.
        size: number of processes.
        is_orderly: True if threads of one process may not call collectives concurrently.
    """

    rank: int = 0
    size: int = 1
    is_orderly: bool = False

    @property
    def is_writer(self) -> bool:
        """True on rank 0, which writes the run's folder and shows progress."""
        return self.rank == 0

    def shard(self, items: Sequence[Value]) -> list[Value]:
        """Items of this rank: every `size`-th item, starting at `rank`."""
        return list(items[self.rank :: self.size])

    @abstractmethod
    def gather(self, value: Value) -> list[Value]:
        """Return the values of all ranks, in rank order (all-gather)."""

    @abstractmethod
    def together(self, work: Callable[[], Value]) -> list[Value]:
        """Call `work` on every rank, and return the results of all ranks, in rank order.

        Raises:
            Exception: on all ranks, the error of the lowest rank that failed.
        """

    @abstractmethod
    def add_up(self, tensors: Sequence[Tensor]) -> None:
        """Sum each tensor over all ranks, in place (all-reduce). The result is the same bit for bit on all ranks."""

    @abstractmethod
    def spread(self, tensors: Iterable[Tensor]) -> None:
        """Broadcast each tensor from rank 0, in place."""

    @abstractmethod
    def share_out(self, learnable: Learnable, *, shards: bool) -> None:
        """Broadcast the weights of rank 0. With `shards`, each rank then keeps a shard of them (FSDP2)."""

    @abstractmethod
    def union(self, found: Mapping[int, Tensor]) -> dict[int, Tensor]:
        """Merge the tensors of all ranks, by number; returned on this rank's device."""

    def agreed(self, value: Value) -> Value:
        """Return the value of rank 0 on all ranks."""
        return self.gather(value)[0]

    def by_writer(self, work: Callable[[], Value]) -> Value:
        """Call `work` on rank 0 while the other ranks wait, and return its result on all ranks.

        Raises:
            Exception: on all ranks, the error of rank 0.
        """
        if self.is_writer:
            return self.together(work)[0]
        results: list[Any] = self.together(lambda: None)
        result: Value = results[0]
        return result


class Alone(Group):
    """Group of a single process."""

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


def current() -> Group:
    """Group of this process."""
    return _current[-1]


@contextmanager
def member(group: Group) -> Iterator[Group]:
    """Set the group of this process inside the block."""
    _current.append(group)
    try:
        yield group
    finally:
        _current.remove(group)


_current: list[Group] = [Alone()]
