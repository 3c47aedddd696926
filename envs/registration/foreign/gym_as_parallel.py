"""Conversion of Gymnasium environments to parallel environments with a single agent."""

from __future__ import annotations

import re
from abc import ABC
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete, MultiDiscrete, Space
from pettingzoo import ParallelEnv

from ...vectors.faults import ResetResult, StepResult


class GymnasiumTeam(ParallelEnv[str, Any, Any], ABC):
    """Base class of parallel environments that wrap a Gymnasium environment. Subclasses define `reset` and `step`."""

    def _take(
        self, env: gymnasium.Env[Any, Any], seen: Mapping[str, Space[Any]], acted: Mapping[str, Space[Any]]
    ) -> None:
        # Not in `__init__`, because the registry would then allow only the arguments of this method as `kwargs`.
        self.env = env
        self.possible_agents = list(acted)
        self.agents: list[str] = []
        self.observation_spaces = dict(seen)
        self.action_spaces = dict(acted)
        self.render_mode = env.render_mode
        name = env.spec.id if env.spec is not None else f"{type(env.unwrapped).__name__}-v0"
        named = {"name": re.sub(r"\W", "_", name.lower()), "is_parallelizable": True}
        self.metadata = {"render_modes": [], **env.metadata, **named}  # PettingZoo requires these entries

    @property
    def np_random(self) -> np.random.Generator:
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
    """Build an environment from an id and `kwargs`. If `env` is an environment, return it; `kwargs` must be empty."""
    if isinstance(env, str):
        return gymnasium.make(env, disable_env_checker=True, **kwargs)
    if kwargs:
        raise TypeError(f"the arguments {sorted(kwargs)} need an environment id, but env is not an id; pass an id")
    return env


def in_space(space: Space[Any], action: Any) -> Any:
    """Convert an action to the type of its space. An action outside a `Box` is clipped."""
    if isinstance(space, Discrete):
        return space.dtype.type(np.asarray(action).item())
    if isinstance(space, Box):
        return np.clip(np.asarray(action, dtype=space.dtype).reshape(space.shape), space.low, space.high)
    if isinstance(space, MultiDiscrete):
        return np.asarray(action, dtype=space.dtype).reshape(space.shape)
    return action


AGENT = "agent_0"


class GymAsParallel(GymnasiumTeam):
    """Gymnasium environment as a parallel environment with the single agent `agent_0`.

    Actions outside a `Box` are clipped, because Gaussian policies are unbounded.

    Args:
        env: environment, or its id ("CartPole-v1").
        kwargs: arguments of `gymnasium.make`, if `env` is an id.
    """

    def __init__(self, env: str | gymnasium.Env[Any, Any], **kwargs: Any):
        env = made(env, kwargs)
        self._take(env, {AGENT: env.observation_space}, {AGENT: env.action_space})

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> ResetResult:
        observation, info = self.env.reset(seed=seed, options=options)
        self.agents = [AGENT]
        return {AGENT: observation}, {AGENT: dict(info)}

    def step(self, actions: dict[str, Any]) -> StepResult:
        if not self.agents:
            raise RuntimeError("no episode is running; call reset() first")
        action = in_space(self.action_spaces[AGENT], actions[AGENT])
        observation, reward, is_terminated, is_truncated, info = self.env.step(action)
        if is_terminated or is_truncated:
            self.agents = []
        ends = {AGENT: bool(is_terminated)}, {AGENT: bool(is_truncated)}
        return {AGENT: observation}, {AGENT: float(reward)}, *ends, {AGENT: dict(info)}
