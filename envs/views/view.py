"""The base of views that change what agents see or how they act, and leave the game alone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gymnasium.spaces import Space, Text
from pettingzoo import ParallelEnv
from pettingzoo.utils import BaseParallelWrapper


class View(BaseParallelWrapper):
    """The same environment, seen otherwise by some or all of its agents. Views go on top of each other.

    A view fills those of the hooks `seen_space`, `seen`, `acting_space`, `acted` and `told` that it is about.

    Args:
        env: any parallel environment, another view among them.
        agents: whose view it is; None: everybody's.

    Raises:
        ValueError: if one of the agents does not exist.
    """

    def __init__(self, env: ParallelEnv[str, Any, Any], agents: Iterable[str] | None = None):
        super().__init__(env)
        self.viewers = tuple(env.possible_agents if agents is None else agents)
        unknown = [agent for agent in self.viewers if agent not in env.possible_agents]
        if unknown:
            raise ValueError(f"a view for {unknown} needs agents out of {list(env.possible_agents)}")
        self.observation_spaces: dict[str, Space[Any]] = {
            agent: env.observation_space(agent) for agent in env.possible_agents
        }
        self.action_spaces: dict[str, Space[Any]] = {agent: env.action_space(agent) for agent in env.possible_agents}
        for agent in self.viewers:
            self.observation_spaces[agent] = self.seen_space(self.observation_spaces[agent])
            self.action_spaces[agent] = self.acting_space(self.action_spaces[agent])

    # What a view fills.

    def seen_space(self, space: Space[Any]) -> Space[Any]:
        """The space of what a viewer sees."""
        return space

    def seen(self, agent: str, observation: Any) -> Any:
        """What a viewer sees of an observation."""
        return observation

    def acting_space(self, space: Space[Any]) -> Space[Any]:
        """The space a viewer acts in."""
        return space

    def acted(self, agent: str, action: Any) -> Any:
        """The action of the environment that a viewer's action stands for."""
        return action

    def told(self, info: dict[str, Any]) -> dict[str, Any]:
        """What a viewer is told in its info."""
        return info

    # PettingZoo's parallel API.

    def observation_space(self, agent: str) -> Space[Any]:
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> Space[Any]:
        return self.action_spaces[agent]

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
        observations, infos = self.env.reset(seed=seed, options=options)
        return self._all_seen(observations), self._all_told(infos)

    def step(self, actions: dict[str, Any]) -> tuple[Any, ...]:
        meant = {agent: self.acted(agent, act) if agent in self.viewers else act for agent, act in actions.items()}
        observations, rewards, terminations, truncations, infos = self.env.step(meant)
        return self._all_seen(observations), rewards, terminations, truncations, self._all_told(infos)

    def _all_seen(self, observations: dict[str, Any]) -> dict[str, Any]:
        return {agent: self.seen(agent, it) if agent in self.viewers else it for agent, it in observations.items()}

    def _all_told(self, infos: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        return {agent: self.told(it) if agent in self.viewers else it for agent, it in infos.items()}


def require_text(space: Space[Any], view: str) -> int:
    """The greatest length of a space of texts.

    Raises:
        TypeError: if it is no space of texts.
    """
    if not isinstance(space, Text):
        raise TypeError(f"{view} needs texts, but the space is {space}; put it directly on a text environment")
    return int(space.max_length)
