"""Demonstrations of MiniBuild by imperfect scripted players, for supervised training of a small model.

The players never name a part twice, follow no convention and make many mistakes. A model trained on these episodes
makes legal moves and remembers its own moves, but still has to learn to divide the parts.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Set

from ...core import Message
from .env import MiniBuild, PartsEnv
from .prompts import Feedback, reply
from .rules import MATERIALS, PARTS, Goal, Move, Split


def demonstration(
    rng: random.Random,
    *,
    num_agents: int = 2,
    max_turns: int = 6,
    feedback: Feedback = "cross",
    split: Split = "train",
    preference: tuple[float, float] = (0.0, 0.2),
    mistakes: tuple[float, float] = (0.35, 0.5),
) -> dict[str, tuple[Message, ...]]:
    """Run one episode with imperfect players.

    Args:
        rng: random number generator for the goal, the players and their mistakes.
        num_agents, max_turns, feedback: see `MiniBuild`.
        split: split of the goal.
        preference: range of the probability that a player picks from its own part of the goal (the first `max_turns`
            pairs for builder_0, and so on), if any pair is left there. Otherwise it picks from the whole goal.
        mistakes: range from which each player's probability of a mistake is sampled.

    Returns:
        The messages of each agent; role "assistant" marks its replies.
    """
    env = MiniBuild(split, num_agents=num_agents, max_turns=max_turns, feedback=feedback)

    def choose(seat: int, is_own: bool, named: Set[str]) -> Move:
        own = env.goal[seat * max_turns : (seat + 1) * max_turns] if is_own else env.goal
        return rng.choice(_others(own, named) or _others(env.goal, named))

    return play(env, rng, choose, preference, mistakes)


def play(
    env: PartsEnv,
    rng: random.Random,
    choose: Callable[[int, bool, Set[str]], Move],
    preference: tuple[float, float],
    mistakes: tuple[float, float],
) -> dict[str, tuple[Message, ...]]:
    """Run one episode. `choose`: function (seat, whether it prefers its own part, parts that it has named) -> move."""
    observations, _ = env.reset(seed=rng.randrange(2**31))
    preferences = {agent: rng.uniform(*preference) for agent in env.possible_agents}
    blunders = {agent: rng.uniform(*mistakes) for agent in env.possible_agents}
    named: dict[str, set[str]] = {agent: set() for agent in env.possible_agents}
    while env.agents:
        moves: dict[str, str] = {}
        for seat, agent in enumerate(env.agents):
            move = choose(seat, rng.random() < preferences[agent], named[agent])
            if rng.random() < blunders[agent]:
                move = blunder(rng, move)
            named[agent].add(move[0])
            moves[agent] = reply(move)
        observations = env.step(moves)[0]
    return {agent: observations[agent].messages for agent in env.possible_agents}


def _others(wanted: Goal, named: Set[str]) -> list[Move]:
    return [move for move in wanted if move[0] not in named]


def blunder(rng: random.Random, move: Move) -> Move:
    """Return the move with a random material and, with probability 0.25, a random part."""
    return (move[0] if rng.random() < 0.75 else rng.choice(PARTS)), rng.choice(MATERIALS)
