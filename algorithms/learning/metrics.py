"""Metrics of an update, accumulated on the device, and checks that they are finite."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ...agents.core import Divergence
from ...agents.scoring.sharding import own_rows
from ..distribution.group import current


class Timer:
    """Seconds of the phases of an update.

    Attributes:
        seconds: by phase.
    """

    def __init__(self) -> None:
        self._start = self._last = time.perf_counter()
        self.seconds: dict[str, float] = {}

    def lap(self, phase: str) -> None:
        """End a phase, which began when the last one ended."""
        now = time.perf_counter()
        self.seconds[phase] = now - self._last
        self._last = now

    @property
    def total(self) -> float:
        """Seconds from the start to the end of the last phase."""
        return self._last - self._start


@contextmanager
def annotated(agents: Sequence[str] = (), rewards: tuple[float, float] | None = None) -> Iterator[None]:
    """Add the agents and the range of the rewards to a `Divergence` that is raised inside the block."""
    try:
        yield
    except Divergence as divergence:
        divergence.agents = divergence.agents or tuple(agents)
        divergence.rewards = divergence.rewards or rewards
        raise


def means(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Mean of each metric over models; empty without rows."""
    return {name: sum(row[name] for row in rows) / len(rows) for name in (rows[0] if rows else ())}


def check_finite(numbers: Mapping[str, float], parameters: Iterable[nn.Parameter]) -> None:
    """Refuse losses and metrics that are not finite.

    Args:
        numbers: losses and metrics by name.
        parameters: weights that computed them.

    Raises:
        Divergence: with the name of the first number that is not finite.
    """
    for name, number in numbers.items():
        if not math.isfinite(number):
            raise diverged(f"{name} is {number}", parameters)


def diverged(problem: str, parameters: Iterable[nn.Parameter]) -> Divergence:
    """Make a `Divergence` with the largest weight of all ranks (collective).

    Args:
        problem: the number that is not finite.
        parameters: weights that computed it.
    """
    found = Divergence(problem, [nn.Parameter(own_rows(weight)) for weight in parameters])
    ranks = [each for each in current().gather(found.largest_weight) if each is not None]
    found.largest_weight = max(ranks, default=None)
    return found


class Numbers(NamedTuple):
    """Metrics on the host, by name."""

    sums: dict[str, float]
    largest: dict[str, float]


class Tally:
    """Accumulates metrics of passes on the device, by name; reading all of them at once synchronizes the host once.

    A tally holds the numbers of one rank; `read` combines all ranks.
    """

    def __init__(self) -> None:
        self._numbers: list[Tensor] = []
        self._uses: list[tuple[str, float | None]] = []

    def add(self, name: str, number: Tensor, weight: float = 1.0) -> None:
        """Add a number, multiplied by a weight, to the sum of this name."""
        self._numbers.append(number.detach())
        self._uses.append((name, weight))

    def add_common(self, name: str, number: Tensor) -> None:
        """Add a number that is equal on all ranks; it is counted once."""
        if current().is_writer:
            self.add(name, number)

    def compare(self, name: str, number: Tensor) -> None:
        """Update the maximum of this name."""
        self._numbers.append(number.detach())
        self._uses.append((name, None))

    def read(self) -> Numbers:
        """Sums and maxima by name over all ranks; synchronizes the host once (collective)."""
        numbers = torch.stack([number.double() for number in self._numbers]).cpu().tolist() if self._numbers else []
        own = _numbers((name, weight, number) for (name, weight), number in zip(self._uses, numbers, strict=True))
        ranks = current().gather(own)
        sums = [(name, 1.0, number) for each in ranks for name, number in each.sums.items()]
        largest = [(name, None, number) for each in ranks for name, number in each.largest.items()]
        return _numbers([*sums, *largest])


def _numbers(uses: Iterable[tuple[str, float | None, float]]) -> Numbers:
    sums: dict[str, float] = defaultdict(float)
    largest: dict[str, float] = {}
    for name, weight, number in uses:
        if weight is None:
            largest[name] = max(largest.get(name, -math.inf), number)
        else:
            sums[name] += number * weight
    return Numbers(dict(sums), largest)
