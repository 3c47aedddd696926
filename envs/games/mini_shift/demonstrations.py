"""Imperfect players of MiniShift, whose episodes a small model is taught on before it plays.

They know the materials and hardly divide: a model taught on them plays legal moves, collides as chance has it,
succeeds now and then, and has the convention still to learn.
"""

from __future__ import annotations

import random

from ...core import Message
from ..mini_build.demonstrations import blunder
from ..mini_build.prompts import Feedback, reply
from ..mini_build.rules import Split
from .env import MiniShift


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
    """One episode of noisy players, as each of them saw it.

    Args:
        rng: decides the offers, the players' habits and their blunders.
        num_agents: as of the environment.
        max_turns: as of the environment.
        feedback: as of the environment.
        is_shuffled: as of the environment.
        split: where the offers come from.
        preference: range of the probability with which a player takes the place of its list that is its seat's number;
            otherwise it takes any.
        mistakes: range of the probability of a blunder.

    Returns:
        Each agent's whole transcript; the messages of role "assistant" are its replies.
    """
    env = MiniShift(split, num_agents=num_agents, max_turns=max_turns, feedback=feedback, is_shuffled=is_shuffled)
    observations, _ = env.reset(seed=rng.randrange(2**31))
    preferences = {agent: rng.uniform(*preference) for agent in env.possible_agents}
    blunders = {agent: rng.uniform(*mistakes) for agent in env.possible_agents}
    while env.agents:
        moves: dict[str, str] = {}
        for seat, agent in enumerate(env.agents):
            pairs = env.offer.lists[seat]
            move = pairs[seat] if rng.random() < preferences[agent] else rng.choice(pairs)
            if rng.random() < blunders[agent]:
                move = blunder(rng, move)
            moves[agent] = reply(move)
        observations = env.step(moves)[0]
    return {agent: observations[agent].messages for agent in env.possible_agents}
