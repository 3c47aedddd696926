"""A Gymnasium environment as a team of one: what trains on teams trains on it."""

from __future__ import annotations

import re
from abc import ABC
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete, Space, flatten, flatten_space
from pettingzoo import ParallelEnv

from ...spaces import is_flattenable


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


AGENT = "agent_0"


class GymAsParallel(GymnasiumTeam):
    """A Gymnasium environment with one agent, `agent_0`; spaces, rewards and ends are its own.

    Observation space: the environment's. Action space: the environment's; actions are brought to its type, and those
    outside a `Box` to its nearest point, as a Gaussian policy knows no bounds.

    Args:
        env: an environment, or the id of one ("CartPole-v1").
        kwargs: arguments of `gymnasium.make`, for an id.
    """

    def __init__(self, env: str | gymnasium.Env[Any, Any], **kwargs: Any):
        env = made(env, kwargs)
        self._take(env, {AGENT: env.observation_space}, {AGENT: env.action_space})

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
        observation, info = self.env.reset(seed=seed, options=options)
        self.agents = [AGENT]
        return {AGENT: observation}, {AGENT: dict(info)}

    def step(
        self, actions: dict[str, Any]
    ) -> tuple[dict[str, Any], dict[str, float], dict[str, bool], dict[str, bool], dict[str, dict[str, Any]]]:
        if not self.agents:
            raise RuntimeError("no episode is running; call reset() first")
        action = in_space(self.action_spaces[AGENT], actions[AGENT])
        observation, reward, is_terminated, is_truncated, info = self.env.step(action)
        if is_terminated or is_truncated:
            self.agents = []
        return (
            {AGENT: observation},
            {AGENT: float(reward)},
            {AGENT: bool(is_terminated)},
            {AGENT: bool(is_truncated)},
            {AGENT: dict(info)},
        )


class Part(gymnasium.ObservationWrapper[Any, Any, Any]):
    """A Gymnasium environment of which one entry of the dict observations is seen.

    Args:
        env: an environment whose observation space is a `Dict`.
        key: the entry.

    Raises:
        TypeError: if there is no such entry.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], key: str):
        super().__init__(env)
        space = env.observation_space
        if not isinstance(space, Dict) or key not in space.spaces:
            raise TypeError(f"observed={key!r} needs observations with an entry of this name, but the space is {space}")
        self.key = key
        self.observation_space = space[key]

    def observation(self, observation: Any) -> Any:
        return observation[self.key]


class Flat(gymnasium.ObservationWrapper[Any, Any, Any]):
    """A Gymnasium environment whose observations are flattened into one vector.

    The vectors are those of `gymnasium.wrappers.FlattenObservation`, which cannot be pickled.

    Args:
        env: an environment whose observations have a fixed size.

    Raises:
        TypeError: if they have none.
    """

    def __init__(self, env: gymnasium.Env[Any, Any]):
        super().__init__(env)
        if not is_flattenable(env.observation_space):
            raise TypeError(
                f"flatten=True needs observations of a fixed size, but the space is {env.observation_space}"
            )
        self.observation_space = flatten_space(env.observation_space)

    def observation(self, observation: Any) -> Any:
        return flatten(self.env.observation_space, observation)
