"""Whether what an update computes is finite, so that a divergence is not blamed on the wrong thing."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ...agents.core import Divergence
from ...agents.scoring.sharding import own_rows
from ..distribution.group import current
from ..rollout.episode import Episode


def reward_range(episodes: Sequence[Episode]) -> tuple[float, float]:
    """Least and greatest reward of at least one turn.

    Raises:
        Divergence: naming agent, episode and turn of a reward that is not finite, as the environment's own always are.
    """
    rewards = []
    for episode in episodes:
        for agent, track in episode.tracks.items():
            for turn in track:
                if not math.isfinite(turn.reward):
                    fault = Divergence(
                        f"the reward to learn from is {turn.reward} in turn {turn.time + 1} of episode {episode.index} "
                        f"(seed {episode.seed})"
                    )
                    fault.agents = (agent,)
                    fault.remedy = (
                        "the environment's own reward is finite, so mend what changes it: reward_processor, "
                        "reward_model, reward_scale, reward_shift, or the KL penalty"
                    )
                    raise fault
                rewards.append(turn.reward)
    return min(rewards), max(rewards)


def check_finite(numbers: Mapping[str, float], parameters: Iterable[nn.Parameter]) -> None:
    """Refuse losses and metrics that are not finite.

    Args:
        numbers: losses and metrics by name.
        parameters: weights that they were computed with.

    Raises:
        Divergence: naming the first of them.
    """
    for name, number in numbers.items():
        if not math.isfinite(number):
            raise diverged(f"{name} is {number}", parameters)


def diverged(problem: str, parameters: Iterable[nn.Parameter]) -> Divergence:
    """A divergence that all ranks see, with the largest weight of all of them.

    Args:
        problem: what is not finite.
        parameters: weights that it was computed with.
    """
    found = Divergence(problem, [nn.Parameter(own_rows(weight)) for weight in parameters])
    ranks = [each for each in current().gather(found.largest_weight) if each is not None]
    found.largest_weight = max(ranks, default=None)
    return found


class Numbers(NamedTuple):
    """What passes found, by name."""

    sums: dict[str, float]
    largest: dict[str, float]


class Tally:
    """Numbers that passes leave on the device, by name, to be read all at once: each reading makes the host wait.

    A tally is of one rank's passes; what is read is of all ranks'.
    """

    def __init__(self) -> None:
        self._numbers: list[Tensor] = []
        self._uses: list[tuple[str, float | None]] = []

    def add(self, name: str, number: Tensor, weight: float = 1.0) -> None:
        """Add a number, times a weight, to those of this name."""
        self._numbers.append(number.detach())
        self._uses.append((name, weight))

    def add_common(self, name: str, number: Tensor) -> None:
        """Add a number that is the same on every rank, and counts once."""
        if current().is_writer:
            self.add(name, number)

    def compare(self, name: str, number: Tensor) -> None:
        """Have the largest of the numbers of this name."""
        self._numbers.append(number.detach())
        self._uses.append((name, None))

    def is_finite(self) -> Tensor:
        """Whether all that is added up is finite, on the device: bool []."""
        added = [number for number, (_, weight) in zip(self._numbers, self._uses, strict=True) if weight is not None]
        return torch.stack([number.double() for number in added]).isfinite().all()

    def total(self, name: str) -> Tensor:
        """The sum of the numbers of this name, on the device: float64 []."""
        found = zip(self._numbers, self._uses, strict=True)
        return torch.stack([n.double() * weight for n, (own, weight) in found if own == name and weight]).sum()


def numbers_of(tallies: Sequence[Tally]) -> list[Numbers]:
    """The sum, or the largest, of the numbers of each name, by tally and on all ranks; the host waits once."""
    left = [number.double() for tally in tallies for number in tally._numbers]
    read = iter(torch.stack(left).cpu().tolist() if left else [])
    found = [_numbers((name, weight, next(read)) for name, weight in tally._uses) for tally in tallies]
    return [_together(numbers) for numbers in zip(*current().gather(found), strict=True)]


def _numbers(uses: Iterable[tuple[str, float | None, float]]) -> Numbers:
    sums: dict[str, float] = defaultdict(float)
    largest: dict[str, float] = {}
    for name, weight, number in uses:
        if weight is None:
            largest[name] = max(largest.get(name, -math.inf), number)
        else:
            sums[name] += number * weight
    return Numbers(dict(sums), largest)


def _together(ranks: Sequence[Numbers]) -> Numbers:
    """The numbers of one tally, from those of each rank."""
    sums = [(name, 1.0, number) for numbers in ranks for name, number in numbers.sums.items()]
    largest = [(name, None, number) for numbers in ranks for name, number in numbers.largest.items()]
    return _numbers([*sums, *largest])
