"""What Gymnasium environments of one agent and of several have in common as teams: spaces, metadata, actions."""

from __future__ import annotations

import re
from abc import ABC
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete, MultiDiscrete, Space
from pettingzoo import ParallelEnv


class GymnasiumTeam(ParallelEnv[str, Any, Any], ABC):
    """A Gymnasium environment whose agents have spaces of their own; `reset` and `step` are the subclass's.

    A subclass's `__init__` takes arguments for `gymnasium.make`, and so this class has none that would limit them.
    """

    def _take(
        self, env: gymnasium.Env[Any, Any], seen: Mapping[str, Space[Any]], acted: Mapping[str, Space[Any]]
    ) -> None:
        """Begin with an environment, and the observation and action space of each agent, in the same order."""
        self.env = env
        self.possible_agents = list(acted)
        self.agents: list[str] = []
        self.observation_spaces = dict(seen)
        self.action_spaces = dict(acted)
        self.render_mode = env.render_mode
        self.metadata = metadata_of(env)

    @property
    def np_random(self) -> np.random.Generator:
        """The environment's own generator, which wrappers of teams draw from."""
        return self.env.unwrapped.np_random

    def observation_space(self, agent: str) -> Space[Any]:
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> Space[Any]:
        return self.action_spaces[agent]

    def render(self) -> Any:
        return self.env.render()

    def close(self) -> None:
        self.env.close()


def made(env: str | gymnasium.Env[Any, Any], kwargs: Mapping[str, Any]) -> gymnasium.Env[Any, Any]:
    """An environment as it is, or that of an id.

    Raises:
        TypeError: if arguments come with an environment.
    """
    if isinstance(env, str):
        return gymnasium.make(env, disable_env_checker=True, **kwargs)
    if kwargs:
        raise TypeError(f"{sorted(kwargs)} are arguments for an environment's id, but an environment was given")
    return env


def metadata_of(env: gymnasium.Env[Any, Any]) -> dict[str, Any]:
    """Metadata of a parallel environment, from those of a Gymnasium environment."""
    name = env.spec.id if env.spec is not None else f"{type(env.unwrapped).__name__}-v0"
    named = {"name": re.sub(r"\W", "_", name.lower()), "is_parallelizable": True}
    return {"render_modes": [], **env.metadata, **named}


def in_space(space: Space[Any], action: Any) -> Any:
    """An action in the type of its space; of a `Box` the nearest point."""
    if isinstance(space, Discrete):
        return space.dtype.type(np.asarray(action).item())
    if isinstance(space, Box):
        return np.clip(np.asarray(action, dtype=space.dtype).reshape(space.shape), space.low, space.high)
    if isinstance(space, MultiDiscrete):
        return np.asarray(action, dtype=space.dtype).reshape(space.shape)
    return action
