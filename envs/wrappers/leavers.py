"""Wrapper for libraries in which all agents must stay until the end of the episode."""

from __future__ import annotations

from typing import Any

from pettingzoo import ParallelEnv
from pettingzoo.utils import BaseParallelWrapper

from ..core import ResetResult


class KeptLeavers(BaseParallelWrapper[str, Any, Any]):
    """Keeps all agents in `agents` until the last agent's episode ends.

    An agent whose episode has ended gets its last observation again, reward 0, and an info with `has_left` = 1. Actions
    of this agent have no effect. The terminations and truncations of all agents are returned in the last turn. Spaces:
    unchanged. Agents of the environment must not join during an episode.
    """

    def __init__(self, env: ParallelEnv[str, Any, Any]):
        super().__init__(env)
        self._agents: list[str] = []
        self._last: dict[str, Any] = {}
        self._ends: dict[str, tuple[bool, bool]] = {}  # (is_terminated, is_truncated) of agents that left

    @property
    def agents(self) -> list[str]:
        return self._agents

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> ResetResult:
        self._last, infos = self.env.reset(seed=seed, options=options)
        self._last, self._ends = dict(self._last), {}
        self._agents = list(self._last)
        return dict(self._last), self._with_has_left(infos)

    def step(self, actions: dict[str, Any]) -> tuple[Any, ...]:
        staying = {agent: action for agent, action in actions.items() if agent not in self._ends}
        observations, rewards, terminations, truncations, infos = self.env.step(staying)
        present = [agent for agent in observations if agent not in self._ends]  # also agents that wait
        for agent in present:
            self._last[agent] = observations[agent]
            if terminations[agent] or truncations[agent]:
                self._ends[agent] = (bool(terminations[agent]), bool(truncations[agent]))
        agents, infos = self._agents, self._with_has_left(infos)
        is_over = len(self._ends) == len(agents)
        ends = self._ends if is_over else dict.fromkeys(agents, (False, False))
        if is_over:
            self._agents = []
        return (
            {agent: self._last[agent] for agent in agents},
            {agent: rewards[agent] if agent in present else 0.0 for agent in agents},
            {agent: ends[agent][0] for agent in agents},
            {agent: ends[agent][1] for agent in agents},
            infos,
        )

    def _with_has_left(self, infos: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        return {agent: {**infos.get(agent, {}), "has_left": int(agent in self._ends)} for agent in self._agents}
