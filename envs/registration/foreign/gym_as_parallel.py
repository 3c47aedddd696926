"""Conversion of Gymnasium environments to parallel environments with one or several agents."""

from __future__ import annotations

import re
from abc import ABC
from collections.abc import Mapping, Sequence
from typing import Any, cast

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete, MultiDiscrete, Space, Tuple
from pettingzoo import ParallelEnv

from ...core import Infos, ResetResult, StepResult


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
    """Build a Gymnasium environment from an id and `kwargs`. Return an environment unchanged; it needs no `kwargs`."""
    if isinstance(env, str):
        return gymnasium.make(env, disable_env_checker=True, **kwargs)
    if kwargs:
        raise TypeError(f"the arguments {sorted(kwargs)} need an id as env, got an environment; pass an id")
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
    """Converts a Gymnasium environment to a parallel environment with the single agent `agent_0`.

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


class TupleTeam(GymnasiumTeam):
    """Converts multi-agent Gymnasium environments in the format of EPyMARL, Level-Based Foraging, Robotic Warehouse.

    The spaces are Tuples. Spaces, observations, rewards and actions have one entry per agent. Agents are `agent_0`,
    `agent_1`, …, and all are live until the episode ends. If `terminated` has one entry per agent, the episode ends
    when all entries are true, as in EPyMARL. If `env` is an id, each reset with a seed builds a new environment.

    Args:
        env: environment, or its id ("Foraging-8x8-2p-2f-v3").
        kwargs: arguments of `gymnasium.make`, if `env` is an id.
    """

    def __init__(self, env: str | gymnasium.Env[Any, Any], **kwargs: Any):
        self._id = (env, kwargs) if isinstance(env, str) else None
        self._has_begun = False
        env = made(env, kwargs)
        if not is_tuple_team(env):
            raise TypeError(
                "TupleTeam needs a Tuple of observation spaces and a Tuple of action spaces of the same length, got "
                f"{env.observation_space} and {env.action_space}"
            )
        seen, acted = (cast(Any, space).spaces for space in (env.observation_space, env.action_space))
        agents = [f"agent_{number}" for number in range(len(acted))]
        self._take(env, dict(zip(agents, seen, strict=True)), dict(zip(agents, acted, strict=True)))

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> ResetResult:
        # In lbforaging 2.0.0, the first state also depends on the previous episode, even if `reset` gets a seed.
        if seed is not None and self._has_begun and self._id is not None:
            self.env.close()
            self.env = made(*self._id)
        self._has_begun = True
        observations, infos = self.env.reset(seed=seed, options=options)
        self.agents = list(self.possible_agents)
        return self._by_agent("observations", observations), self._infos(infos)

    def step(self, actions: dict[str, Any]) -> StepResult:
        if not self.agents:
            raise RuntimeError("no episode is running; call reset() first")
        joint = tuple(in_space(self.action_spaces[agent], actions[agent]) for agent in self.agents)
        observations, rewards, terminated, truncated, infos = self.env.step(joint)
        is_terminated, is_truncated = bool(np.all(terminated)), bool(np.all(truncated))
        # The episode also ends if each agent is either terminated or truncated.
        if not is_terminated and not is_truncated and np.all(np.logical_or(terminated, truncated)):
            is_truncated = True
        if is_terminated or is_truncated:
            self.agents = []
        earned = {agent: float(reward) for agent, reward in self._by_agent("rewards", rewards).items()}
        ends = dict.fromkeys(self.possible_agents, is_terminated), dict.fromkeys(self.possible_agents, is_truncated)
        return self._by_agent("observations", observations), earned, *ends, self._infos(infos)

    def _by_agent(self, name: str, values: Any) -> dict[str, Any]:
        if not isinstance(values, (Sequence, np.ndarray)) or len(values) != len(self.possible_agents):
            raise TypeError(f"{name} must have an entry for each of {len(self.possible_agents)} agents, got {values!r}")
        return dict(zip(self.possible_agents, values, strict=True))

    def _infos(self, infos: Any) -> Infos:
        """Convert a list of infos, or a single info for all agents, to a dict: agent -> info."""
        if isinstance(infos, Mapping):
            return {agent: dict(infos) for agent in self.possible_agents}
        return {agent: dict(info) for agent, info in self._by_agent("infos", infos).items()}


def is_tuple_team(env: gymnasium.Env[Any, Any]) -> bool:
    seen, acted = env.observation_space, env.action_space
    return isinstance(seen, Tuple) and isinstance(acted, Tuple) and len(seen.spaces) == len(acted.spaces)
