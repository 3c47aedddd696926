"""The group of processes that train together: replicated control, sharded compute.

Every rank runs the same program with the same seeds. Only work is split: episodes to play, histories to value, passes
to differentiate. What comes of it is gathered or added up, so that all ranks decide alike. One process is a group of
one, and no algorithm asks how many there are.
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
    """The ranks, as one of them sees them.

    All ranks must call its methods in the same order, but for `shard`: each waits for the others.

    Attributes:
        rank: number of this process, 0..size-1.
        size: number of processes.
        is_orderly: whether work that calls these methods must be done in one order, and not in threads side by side.
    """

    rank: int = 0
    size: int = 1
    is_orderly: bool = False

    @property
    def is_writer(self) -> bool:
        """Whether this rank writes the run's folder and shows its progress: rank 0."""
        return self.rank == 0

    def shard(self, items: Sequence[Value]) -> list[Value]:
        """This rank's share: every size-th item, from its own number on."""
        return list(items[self.rank :: self.size])

    @abstractmethod
    def gather(self, value: Value) -> list[Value]:
        """The values of all ranks, in the order of their numbers."""

    @abstractmethod
    def together(self, work: Callable[[], Value]) -> list[Value]:
        """What the work of each rank returns, in the order of their numbers.

        Raises:
            Exception: on all ranks what it raised on one, the first that failed.
        """

    @abstractmethod
    def add_up(self, tensors: Sequence[Tensor]) -> None:
        """Replace each tensor by its sum over all ranks, the same bits on each."""

    @abstractmethod
    def spread(self, tensors: Iterable[Tensor]) -> None:
        """Replace each tensor by the writer's."""

    @abstractmethod
    def share_out(self, learnable: Learnable, *, shards: bool) -> None:
        """Let all ranks begin with the writer's weights.

        Args:
            shards: each is to keep a share of them, in place of all.
        """

    @abstractmethod
    def union(self, found: Mapping[int, Tensor]) -> dict[int, Tensor]:
        """The tensors that the ranks found, by number, on the device of this one."""

    def agreed(self, value: Value) -> Value:
        """The writer's value, for all."""
        return self.gather(value)[0]

    def by_writer(self, work: Callable[[], Value]) -> Value:
        """Have the writer do some work while the others wait; returns what it returned, on all ranks.

        Raises:
            Exception: on all ranks what it raised.
        """
        if self.is_writer:
            return self.together(work)[0]
        waiting: Callable[[], Any] = _nothing
        found: Value = self.together(waiting)[0]
        return found


class Alone(Group):
    """A process that trains by itself."""

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
    """The group of this process: as in torch, whom a process works with is a property of the process."""
    return _current[-1]


@contextmanager
def member(group: Group) -> Iterator[Group]:
    """Have this process belong to a group inside the block."""
    _current.append(group)
    try:
        yield group
    finally:
        _current.remove(group)


def _nothing() -> None:
    return None


_current: list[Group] = [Alone()]
