"""Whether what an update computes is finite, so that a divergence is not blamed on the wrong thing."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor, nn

from ...agents.core import Divergence
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
            raise Divergence(f"{name} is {number}", parameters)


class Tally:
    """Numbers that passes leave on the device, by name, to be read all at once: each reading makes the host wait.

    A tally is of one rank's passes; what is read is of all ranks'.
    """

    def __init__(self) -> None:
        self._numbers: list[Tensor] = []
        self._uses: list[tuple[str, float]] = []

    def add(self, name: str, number: Tensor, weight: float = 1.0) -> None:
        """Add a number, times a weight, to those of this name."""
        self._numbers.append(number.detach())
        self._uses.append((name, weight))

    def add_common(self, name: str, number: Tensor) -> None:
        """Add a number that is the same on every rank, and counts once."""
        if current().is_writer:
            self.add(name, number)

    def read(self) -> tuple[dict[str, float], dict[str, float]]:
        """The sum, and the largest, of the numbers of each name, on all ranks."""
        sums: dict[str, float] = defaultdict(float)
        largest: dict[str, float] = {}
        if self._numbers:
            read = torch.stack([number.double() for number in self._numbers]).cpu().tolist()
            for number, (name, weight) in zip(read, self._uses, strict=True):
                sums[name] += number * weight
                largest[name] = max(largest.get(name, -math.inf), number * weight)
        total: dict[str, float] = defaultdict(float)
        greatest: dict[str, float] = {}
        for their_sums, their_largest in current().gather((dict(sums), largest)):
            for name, number in their_sums.items():
                total[name] += number
                greatest[name] = max(greatest.get(name, -math.inf), their_largest[name])
        return dict(total), greatest
