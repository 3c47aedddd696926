"""Rules of MiniBuild: pure functions on an immutable state.

A goal lists parts with their materials. The first move on a part decides its material for the whole episode.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import comb
from typing import Literal

# Short common words, so that a small tokenizer has one token for each.
PARTS = (
    *("wall", "roof", "door", "window", "floor", "stair", "tower", "gate"),
    *("bridge", "fence", "beam", "arch", "bench", "lamp", "shelf", "stove"),
    *("bed", "desk", "rug", "path", "well", "pond", "shed", "dome"),
)
MATERIALS = ("wood", "stone", "brick", "glass", "clay", "iron", "sand", "wool")
MAX_BUILDERS = 8

Split = Literal["train", "test"]
Reward = Literal["sparse", "terminal", "dense"]
Goal = tuple[tuple[str, str], ...]
Verdict = Literal["ok", "taken", "wrong", "bad"]
Move = tuple[str, str]

_TEST_SHARE = 5  # one goal in five is in the test split


@dataclass(frozen=True)
class Site:
    """State of an episode: its goal, and the parts that are already built."""

    goal: Goal  # (part, material) pairs with different parts
    built: Goal = ()  # (part, material) pairs in the order in which they were built


def is_held_out(goal: Goal) -> bool:
    """Return True if a goal belongs to the test split. A stable hash of its sorted pairs decides."""
    return zlib.crc32(repr(sorted(goal)).encode()) % _TEST_SHARE == 0


def new_goal(seed: int, num_pairs: int, split: Split = "train") -> Goal:
    """Generate a goal from a seed.

    Args:
        seed: any integer; the same seed gives the same goal.
        num_pairs: number of parts in the goal, 1 to 24.
        split: "train" or "test", which share no goal.

    Raises:
        ValueError: if the split is unknown or there are fewer parts than pairs.
    """
    if split not in ("train", "test"):
        raise ValueError(f"split must be 'train' or 'test', got {split!r}")
    if not 1 <= num_pairs <= len(PARTS):
        raise ValueError(f"num_pairs must be 1 to {len(PARTS)}, the number of known parts, got {num_pairs}")
    rng = random.Random(f"{split} {num_pairs} {seed}")
    while True:
        goal = tuple((part, rng.choice(MATERIALS)) for part in rng.sample(PARTS, num_pairs))
        if is_held_out(goal) == (split == "test"):
            return goal


def placed(site: Site, move: Move | None) -> tuple[Site, Verdict]:
    """Carry out one builder's move. Return the new state and the result.

    The result is "bad" (no move, or a part outside the goal), "taken" (the part was built before), "ok" (built of the
    right material) or "wrong".
    """
    if move is None or move[0] not in dict(site.goal):
        return site, "bad"
    if move[0] in dict(site.built):
        return site, "taken"
    return replace(site, built=(*site.built, move)), "ok" if move in site.goal else "wrong"


def quality(site: Site) -> float:
    """Return the fraction of the goal's parts that are built of the right material, 0 to 1."""
    return len(set(site.goal) & set(site.built)) / len(site.goal)


def payoff(reward: Reward, quality: float, gain: float, *, threshold: float, is_last: bool) -> float:
    """Return the reward of a turn, 0 to 1.

    "sparse": 1 after the last turn if the quality is at least `threshold`, otherwise 0. "terminal": the quality after
    the last turn. "dense": the gain, which is the increase of the quality in the turn.
    """
    if reward == "dense":
        return gain
    if reward == "terminal":
        return quality * is_last
    return float(is_last and quality >= threshold - 1e-9)


def reference_move(site: Site, seat: int, num_builders: int) -> Move:
    """Return the reference player's move. Builders choose parts at equal distances in the list of missing parts.

    Therefore builders choose different parts if enough parts are missing. In a complete goal, any part is chosen.
    """
    missing = [pair for pair in site.goal if pair[0] not in dict(site.built)] or list(site.goal)
    return missing[seat * (len(missing) - 1) // (num_builders - 1)]


def ceilings(num_builders: int, max_turns: int, reward: Reward, threshold: float) -> Mapping[str, float]:
    """Return exact mean returns of teams that know all materials but lack memory, a convention or both."""
    num_parts = num_builders * max_turns
    found = {
        "no memory: each samples from its own part of the goal": joined(
            [num_drawn(max_turns, max_turns)] * num_builders
        ),
        "no convention: each samples pairs that it has not named": num_joint(num_parts, num_builders, max_turns),
        "neither: each samples from the goal": num_drawn(num_parts, num_parts),
    }
    return {lack: mean_pay(reward, chances, threshold=threshold) for lack, chances in found.items()}


def num_drawn(num_parts: int, num_draws: int) -> list[float]:
    """Return the distribution of the number of different parts in `num_draws` samples with replacement."""
    chances = [1.0, *[0.0] * num_parts]
    for _ in range(num_draws):
        chances = [
            chances[k] * k / num_parts + (chances[k - 1] * (num_parts - k + 1) / num_parts if k else 0.0)
            for k in range(num_parts + 1)
        ]
    return chances


def num_joint(num_parts: int, num_sets: int, size: int) -> list[float]:
    """Return the distribution of the number of parts in the union of `num_sets` random sets of one size."""
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
    """Return the distribution of the sum of independent numbers, from the distribution of each number."""
    total = [1.0]
    for chances in distributions:
        found = [0.0] * (len(total) + len(chances) - 1)
        for one, first in enumerate(total):
            for other, second in enumerate(chances):
                found[one + other] += first * second
        total = found
    return total


def mean_pay(reward: Reward, chances: Sequence[float], *, threshold: float) -> float:
    """Return the mean return of an episode that builds k correct parts with probability `chances[k]`."""
    num_parts = len(chances) - 1
    how: Reward = "terminal" if reward == "dense" else reward  # dense rewards sum to the quality
    return sum(
        chance * payoff(how, k / num_parts, 0.0, threshold=threshold, is_last=True) for k, chance in enumerate(chances)
    )
