"""Demonstrations of MiniShift by imperfect scripted players, for supervised training of a small model.

The players know the materials but rarely divide the parts. A model trained on these episodes makes legal moves, but
still has to learn a convention.
"""

from __future__ import annotations

import random
from collections.abc import Set

from ...core import Message
from ..mini_build.demonstrations import play
from ..mini_build.prompts import Feedback
from ..mini_build.rules import Move, Split
from .env import MiniShift

_FEEDBACK: tuple[Feedback, ...] = ("own", "cross", "cross", "both", "none")


def varied_demonstration(rng: random.Random) -> dict[str, tuple[Message, ...]]:
    """Run one episode as `demonstration` does, with a random size of team, length, feedback and order of the lists."""
    return demonstration(
        rng,
        num_agents=rng.choice((2, 2, 2, 3, 4)),
        max_turns=rng.choice((8, 8, 8, 6, 4, 2, 12)),
        feedback=rng.choice(_FEEDBACK),
        is_shuffled=rng.random() < 1 / 3,
    )


def demonstration(
    rng: random.Random,
    *,
    num_agents: int = 2,
    max_turns: int = 8,
    feedback: Feedback = "cross",
    is_shuffled: bool = False,
    split: Split = "train",
    preference: tuple[float, float] = (0.0, 0.2),
    mistakes: tuple[float, float] = (0.02, 0.05),
) -> dict[str, tuple[Message, ...]]:
    """Run one episode with imperfect players.

    Args:
        rng: random number generator for the lists of parts, the players and their mistakes.
        num_agents, max_turns, feedback, is_shuffled: see `MiniShift`.
        split: split of the lists of parts.
        preference: range of the probability that a player takes the part at its own place in the list. Otherwise it
            takes any part.
        mistakes: range from which each player's probability of a mistake is sampled.

    Returns:
        The messages of each agent; role "assistant" marks its replies.
    """
    env = MiniShift(split, num_agents=num_agents, max_turns=max_turns, feedback=feedback, is_shuffled=is_shuffled)

    def choose(seat: int, is_own: bool, named: Set[str]) -> Move:
        pairs = env.offer.lists[seat]
        return pairs[seat] if is_own else rng.choice(pairs)

    return play(env, rng, choose, preference, mistakes)
