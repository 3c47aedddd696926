"""What errorless play reaches that lacks something, exactly: distributions of how many parts get built.

A distribution is a list of probabilities: entry k is that of k different parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import comb

from .rules import Reward, payoff


def ceilings(num_builders: int, max_turns: int, reward: Reward, threshold: float) -> Mapping[str, float]:
    """Mean returns of MiniBuild's builders that know all materials, by what they lack."""
    num_parts = num_builders * max_turns
    found = {
        "no memory: each draws from its own share of the goal": joined(
            [num_drawn(max_turns, max_turns)] * num_builders
        ),
        "no convention: each draws from the goal what it has not named": num_joint(num_parts, num_builders, max_turns),
        "neither: each draws from the goal": num_drawn(num_parts, num_parts),
    }
    return {lack: mean_pay(reward, chances, threshold=threshold) for lack, chances in found.items()}


def num_drawn(num_parts: int, num_draws: int) -> list[float]:
    """Distribution of the different parts among draws with replacement from so many."""
    chances = [1.0, *[0.0] * num_parts]
    for _ in range(num_draws):
        chances = [
            chances[k] * k / num_parts + (chances[k - 1] * (num_parts - k + 1) / num_parts if k else 0.0)
            for k in range(num_parts + 1)
        ]
    return chances


def num_joint(num_parts: int, num_sets: int, size: int) -> list[float]:
    """Distribution of the different parts in the union of random sets of one size."""
    chances = [1.0, *[0.0] * num_parts]
    for _ in range(num_sets):
        joint = [0.0] * (num_parts + 1)
        for known, chance in enumerate(chances):
            for new in range(size + 1):
                ways = comb(num_parts - known, new) * comb(known, size - new)
                if ways:
                    joint[known + new] += chance * ways / comb(num_parts, size)
        chances = joint
    return chances


def joined(distributions: Iterable[Sequence[float]]) -> list[float]:
    """Distribution of the sum of independent numbers."""
    total = [1.0]
    for chances in distributions:
        found = [0.0] * (len(total) + len(chances) - 1)
        for one, first in enumerate(total):
            for other, second in enumerate(chances):
                found[one + other] += first * second
        total = found
    return total


def mean_pay(reward: Reward, chances: Sequence[float], *, threshold: float) -> float:
    """Mean return of an episode that builds k of the parts, of as many as the distribution has, with chance k."""
    num_parts = len(chances) - 1
    how: Reward = "terminal" if reward == "dense" else reward  # what turns add up to is the quality
    return sum(
        chance * payoff(how, k / num_parts, 0.0, threshold=threshold, is_last=True) for k, chance in enumerate(chances)
    )
