"""Wrapper that replaces some agents by scripted partners."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from pettingzoo import ParallelEnv
from pettingzoo.utils import BaseParallelWrapper

from ..core import ResetResult
from ..players import RandomPlayer, scripted_player
from ..spaces import MASK, movers_of


class Partnered(BaseParallelWrapper[str, Any, Any]):
    """Lets scripted players act for some agents, the partners. `possible_agents` contains only the other agents.

    `state()` contains the replies of all agents. `make(id, partners={"writer_1": "reference"})` adds this wrapper.

    Args:
        env: any parallel environment.
        partners: agent -> "reference", "random", "empty", or the name of another player of the environment. Some agents
            must remain.
    """

    def __init__(self, env: ParallelEnv[str, Any, Any], partners: Mapping[str, str]):
        agents = list(env.possible_agents)
        if not isinstance(partners, Mapping) or not partners:
            example = f"{{{agents[-1]!r}: 'random'}}"
            raise ValueError(f"partners must be a dict agent -> player, such as {example}, got {partners!r}")
        if unknown := [agent for agent in partners if agent not in agents]:
            raise ValueError(f"partners has unknown agents {unknown}; choose from {agents}")
        if len(partners) == len(agents):
            raise ValueError(f"partners must not replace all agents, {agents}; leave one agent without a partner")
        if missing := [name for name in partners.values() if scripted_player(env, name) is None]:
            raise ValueError(f"{env} has no {missing[0]} player; use 'random' partners")
        super().__init__(env)
        self._partners = dict(partners)
        self._random = RandomPlayer({agent: env.action_space(agent) for agent in partners})
        self._rng = random.Random(0)
        self._observations: dict[str, Any] = {}
        self._infos: dict[str, dict[str, Any]] = {}

    @property
    def possible_agents(self) -> list[str]:
        return [agent for agent in self.env.possible_agents if agent not in self._partners]

    @property
    def agents(self) -> list[str]:
        return [agent for agent in self.env.agents if agent not in self._partners]

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> ResetResult:
        if seed is not None:
            self._rng = random.Random(seed)
        for agent in self._partners:
            self._random.seed(agent, self._rng.randrange(2**31))
        self._observations, self._infos = self.env.reset(seed=seed, options=options)
        return self._own(self._observations), self._own(self._infos)

    def step(self, actions: dict[str, Any]) -> tuple[Any, ...]:
        replies = {
            agent: self._reply(agent) for agent in movers_of(self.env.agents, self._infos) if agent in self._partners
        }
        parts = self.env.step({**actions, **replies})
        self._observations, self._infos = parts[0], parts[4]
        return tuple(self._own(part) for part in parts)

    def _reply(self, agent: str) -> Any:
        name = self._partners[agent]
        if name == "random":
            mask = self._infos.get(agent, {}).get(MASK)
            return self._random(agent, self._observations.get(agent), mask)
        # The player is created in each turn, because in a copy of this wrapper it must act in the copied environment.
        player = scripted_player(self.env, name)
        assert player is not None
        return player(agent, self._observations.get(agent))

    def _own(self, part: Mapping[str, Any]) -> dict[str, Any]:
        return {agent: value for agent, value in part.items() if agent not in self._partners}
