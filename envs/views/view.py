"""Base class of views: wrappers that convert observations, actions or infos."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gymnasium.spaces import Space, Text
from pettingzoo import ParallelEnv
from pettingzoo.utils import BaseParallelWrapper

from ..core import Infos, ResetResult


class View(BaseParallelWrapper):
    """Base class of wrappers that convert observations, actions or infos of some or all agents.

    Subclasses override some of `seen_space`, `seen`, `acting_space`, `acted` and `told`.

    Args:
        env: any parallel environment.
        agents: agents whose observations, actions and infos are converted. None: all.
    """

    def __init__(self, env: ParallelEnv[str, Any, Any], agents: Iterable[str] | None = None):
        super().__init__(env)
        self.viewers = tuple(env.possible_agents if agents is None else agents)
        unknown = [agent for agent in self.viewers if agent not in env.possible_agents]
        if unknown:
            raise ValueError(f"agents={unknown} are unknown; choose from {list(env.possible_agents)}")
        self.observation_spaces: dict[str, Space[Any]] = {
            agent: env.observation_space(agent) for agent in env.possible_agents
        }
        self.action_spaces: dict[str, Space[Any]] = {agent: env.action_space(agent) for agent in env.possible_agents}
        for agent in self.viewers:
            self.observation_spaces[agent] = self.seen_space(self.observation_spaces[agent])
            self.action_spaces[agent] = self.acting_space(self.action_spaces[agent])

    # Methods for subclasses to override.

    def seen_space(self, space: Space[Any]) -> Space[Any]:
        """Convert an observation space to the space of the converted observations."""
        return space

    def seen(self, agent: str, observation: Any) -> Any:
        """Convert an observation of the environment."""
        return observation

    def acting_space(self, space: Space[Any]) -> Space[Any]:
        """Convert an action space of the environment to the action space of the view."""
        return space

    def acted(self, agent: str, action: Any) -> Any:
        """Convert an action of the view to an action of the environment."""
        return action

    def told(self, info: dict[str, Any]) -> dict[str, Any]:
        """Convert an agent's info dict to the info dict of this view. Default: unchanged."""
        return info

    # PettingZoo's parallel API.

    def observation_space(self, agent: str) -> Space[Any]:
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> Space[Any]:
        return self.action_spaces[agent]

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> ResetResult:
        return self._converted(*self.env.reset(seed=seed, options=options))

    def step(self, actions: dict[str, Any]) -> tuple[Any, ...]:
        meant = {agent: self.acted(agent, act) if agent in self.viewers else act for agent, act in actions.items()}
        observations, rewards, terminations, truncations, infos = self.env.step(meant)
        observations, infos = self._converted(observations, infos)
        return observations, rewards, terminations, truncations, infos

    def _converted(self, observations: dict[str, Any], infos: Infos) -> ResetResult:
        """Convert the observations and infos of the agents in `viewers`."""
        seen = {agent: self.seen(agent, observations[agent]) for agent in self.viewers if agent in observations}
        told = {agent: self.told(infos[agent]) for agent in self.viewers if agent in infos}
        return {**observations, **seen}, {**infos, **told}


def require_text(space: Space[Any], view: str) -> int:
    """Return the maximum length of a text space. Raises TypeError for other spaces."""
    if not isinstance(space, Text):
        raise TypeError(f"{view} needs texts, got {space}; apply this view directly to a text environment")
    return int(space.max_length)
