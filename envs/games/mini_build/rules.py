"""Rules of MiniBuild: pure functions on an immutable state, free of text and of the agent API.

A goal lists parts, each with its material. Whoever builds a part first decides its material for good, so a part built
twice is a wasted move, and a part built of the wrong material is lost.
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

_TEST_SHARE = 5  # one goal in five is held out


@dataclass(frozen=True)
class Site:
    """What is wanted, and what stands."""

    goal: Goal  # (part, material) pairs, no part twice
    built: Goal = ()  # in the order of building


def is_held_out(goal: Goal) -> bool:
    """Whether a goal belongs to the test split, whatever the order in which it is listed.

    A stable hash decides, so that the two splits share no goal, on any machine and for any seeds.
    """
    return zlib.crc32(repr(sorted(goal)).encode()) % _TEST_SHARE == 0


def new_goal(seed: int, num_pairs: int, split: Split = "train") -> Goal:
    """The goal with this number in its split.

    Args:
        seed: any integer; the same one gives the same goal.
        num_pairs: 1 to 24; each part occurs at most once.
        split: "train" or "test"; the two are disjoint.

    Raises:
        ValueError: for another split, or more pairs than there are parts.
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
    """The site after one move, and what became of the move.

    Returns:
        "bad" for no move or a part that the goal does not want, "taken" for a part that stands already; else the part
        is built, "ok" if of the right material and "wrong" if not.
    """
    if move is None or move[0] not in dict(site.goal):
        return site, "bad"
    if move[0] in dict(site.built):
        return site, "taken"
    return replace(site, built=(*site.built, move)), "ok" if move in site.goal else "wrong"


def quality(site: Site) -> float:
    """The share of the goal that stands in the right material, 0 to 1."""
    return len(set(site.goal) & set(site.built)) / len(site.goal)


def payoff(reward: Reward, quality: float, gain: float, *, threshold: float, is_last: bool) -> float:
    """What a turn pays every builder, 0 to 1.

    Args:
        reward: "sparse": after the last turn 1 if the quality reached the threshold, else 0; "terminal": after the last
            turn the quality; "dense": in every turn what it added.
        quality: after the turn.
        gain: the quality that the turn added.
        threshold: the quality that counts as success.
        is_last: whether the episode ends with this turn.
    """
    if reward == "dense":
        return gain
    if reward == "terminal":
        return quality * is_last
    return float(is_last and quality >= threshold - 1e-9)


def refuse_team(num_builders: int, max_turns: int) -> None:
    """Raise if so many builders cannot play so many turns: a goal has a part for each builder in each turn."""
    if isinstance(num_builders, bool) or num_builders not in range(2, MAX_BUILDERS + 1):
        raise ValueError(f"num_agents must be 2 to {MAX_BUILDERS}, got {num_builders!r}")
    if isinstance(max_turns, int) and num_builders * max_turns > len(PARTS):  # else the base class refuses it
        raise ValueError(
            f"max_turns must be at most {len(PARTS) // num_builders} for {num_builders} builders, got {max_turns}; "
            f"a goal has a part for each of them in each turn, and there are {len(PARTS)} parts"
        )


def refuse_threshold(threshold: float) -> None:
    """Raise if no quality, or every quality, would count as success."""
    if not 0 < threshold <= 1:
        raise ValueError(f"threshold must be over 0 and at most 1, got {threshold}")


def reference_move(site: Site, seat: int, num_builders: int) -> Move:
    """What the reference player builds: the first builder from the front of what is missing, the last from its back.

    Those between them take places between, evenly apart. So none of them meet before the goal is complete; then any
    part will do.
    """
    missing = [pair for pair in site.goal if pair[0] not in dict(site.built)] or list(site.goal)
    return missing[seat * (len(missing) - 1) // (num_builders - 1)]


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
