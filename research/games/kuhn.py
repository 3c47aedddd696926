"""Demonstrations of Kuhn poker, which teach legal replies to a small model.

    pip install '.[open-spiel]'
    PYTHONPATH=research/games collm imitate kuhn:random_players research/suites/starts/kuhn

The suite research/suites/kuhn.toml starts with this model. A player's probability of the second reply is fixed for each
prompt, between 0.2 and 0.8. A model of players with probability 0.5 would learn to ignore the card.
"""

from __future__ import annotations

from random import Random

from collm.envs.core import Message
from collm.envs.views.open_spiel import OpenSpiel


def random_players(rng: Random) -> dict[str, tuple[Message, ...]]:
    """Run one episode, and return one conversation per decision."""
    env = OpenSpiel("kuhn_poker")
    observations, _ = env.reset(seed=rng.randrange(2**31))
    found = {}
    while env.agents:
        replies = {}
        for agent in env.movers:
            history = observations[agent]
            first, second = env.legal_replies(agent)
            replies[agent] = second if rng.random() < Random(str(history)).uniform(0.2, 0.8) else first
            found[f"{agent}, turn {env.turn}"] = (*history.messages, Message("assistant", replies[agent]))
        observations = env.step(replies)[0]
    return found
