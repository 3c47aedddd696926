"""Wrapper that replaces some agents by partners: scripted players or functions."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from pettingzoo import ParallelEnv
from pettingzoo.utils import BaseParallelWrapper

from ..._errors import UserError
from ..core import ResetResult
from ..players import Partner, RandomPlayer, scripted_player
from ..spaces import MASK, movers_of

_MAX_EPISODES = 100  # maximum number of episodes that a `reset` starts until an agent acts that is no partner
_MAX_TURNS = 1_000  # maximum number of turns of such an episode in which only partners act


class Partnered(BaseParallelWrapper[str, Any, Any]):
    """Lets scripted players act for some agents, the partners. `possible_agents` contains only the other agents.

    `state()` contains the replies of all agents. `make(id, partners={"writer_1": "reference"})` adds this wrapper.
    If only partners act in the first turns, `reset` plays these turns, whose rewards are added to those of the next
    turn. If the episode ends in these turns, `reset` starts another episode.

    Args:
        env: any parallel environment.
        partners: agent -> "reference", "random", "empty", the name of another player of the environment, or a function
            (agent, observation, generator of random numbers) -> action. Some agents must remain.
    """

    def __init__(self, env: ParallelEnv[str, Any, Any], partners: Mapping[str, str | Partner]):
        agents = list(env.possible_agents)
        if not isinstance(partners, Mapping) or not partners:
            example = f"{{{agents[-1]!r}: 'random'}}"
            raise ValueError(f"partners must be a dict agent -> player, such as {example}, got {partners!r}")
        if unknown := [agent for agent in partners if agent not in agents]:
            raise ValueError(f"partners has unknown agents {unknown}; choose from {agents}")
        if len(partners) == len(agents):
            raise ValueError(f"partners must not replace all agents, {agents}; leave one agent without a partner")
        names = [player for player in partners.values() if not callable(player)]
        if missing := [name for name in names if not isinstance(name, str) or scripted_player(env, name) is None]:
            raise ValueError(f"{env} has no {missing[0]} player; use 'random' partners")
        super().__init__(env)
        self._partners = dict(partners)
        self._random = RandomPlayer({agent: env.action_space(agent) for agent in partners})
        self._rng = random.Random(0)
        self._observations: dict[str, Any] = {}
        self._infos: dict[str, dict[str, Any]] = {}
        self._earned: dict[str, float] = {}  # rewards of the turns that `reset` played

    @property
    def possible_agents(self) -> list[str]:
        return [agent for agent in self.env.possible_agents if agent not in self._partners]

    @property
    def agents(self) -> list[str]:
        return [agent for agent in self.env.agents if agent not in self._partners]

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> ResetResult:
        if seed is not None:
            self._rng = random.Random(seed)
        for _ in range(_MAX_EPISODES):
            for agent in self._partners:
                self._random.seed(agent, self._rng.randrange(2**31))
            self._observations, self._infos = self.env.reset(seed=seed, options=options)
            self._earned = {}
            for _ in range(_MAX_TURNS):
                if not self.agents or movers_of(self.agents, self._infos):
                    break
                self._earned = self._turn({})[1]
            if movers_of(self.agents, self._infos):
                return {agent: self._observations[agent] for agent in self.agents}, self._own(self._infos)
            seed = self._rng.randrange(2**31)
        raise UserError(
            f"in {_MAX_EPISODES} episodes, {', '.join(self.possible_agents)} could not act, because the partners ended "
            f"the episode or acted in {_MAX_TURNS:,} turns; use other partners"
        )

    def step(self, actions: dict[str, Any]) -> tuple[Any, ...]:
        parts = self._turn(actions)
        self._earned = {}
        return parts

    def _turn(self, actions: dict[str, Any]) -> tuple[Any, ...]:
        replies = {
            agent: self._reply(agent) for agent in movers_of(self.env.agents, self._infos) if agent in self._partners
        }
        parts = self.env.step({**actions, **replies})
        self._observations, self._infos = parts[0], parts[4]
        observations, rewards, *others = (self._own(part) for part in parts)
        earned = {agent: reward + self._earned.get(agent, 0.0) for agent, reward in rewards.items()}
        return observations, earned, *others

    def _reply(self, agent: str) -> Any:
        name = self._partners[agent]
        if not isinstance(name, str):
            return name(agent, self._observations.get(agent), self._rng)
        if name == "random":
            mask = self._infos.get(agent, {}).get(MASK)
            return self._random(agent, self._observations.get(agent), mask)
        # The player is created in each turn, because in a copy of this wrapper it must act in the copied environment.
        player = scripted_player(self.env, name)
        assert player is not None
        return player(agent, self._observations.get(agent))

    def _own(self, part: Mapping[str, Any]) -> dict[str, Any]:
        return {agent: value for agent, value in part.items() if agent not in self._partners}
