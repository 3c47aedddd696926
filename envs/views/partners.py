"""Who plays the others where one agent is looked at alone."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from pettingzoo import ParallelEnv

from ..players import RandomPlayer, reference_player

Partner: TypeAlias = Callable[[str, Any, random.Random], Any]
"""(agent, observation, generator) -> action. All its randomness comes from the generator."""


class Partners:
    """The actions of given partners, or where none is given, of stand-ins.

    A stand-in gives the reference reply where the environment knows one, else a random action of its space.

    Args:
        env: the environment they play in.
        given: one partner for all, one for each, or None: stand-ins.
    """

    def __init__(self, env: ParallelEnv[str, Any, Any], given: Partner | Mapping[str, Partner] | None):
        self._given = given
        self._rng = random.Random(0)
        self._agents = tuple(env.possible_agents)
        self._random = RandomPlayer({agent: env.action_space(agent) for agent in self._agents})
        self._stand_in = reference_player(env) or self._random

    def seed(self, seed: int) -> None:
        """Start an episode's randomness."""
        self._rng = random.Random(seed)
        for number, agent in enumerate(self._agents):
            self._random.seed(agent, self._rng.randrange(2**31) + number)

    def action(self, agent: str, observation: Any) -> Any:
        """What a partner does."""
        partner = self._given.get(agent) if isinstance(self._given, Mapping) else self._given
        return self._stand_in(agent, observation) if partner is None else partner(agent, observation, self._rng)
