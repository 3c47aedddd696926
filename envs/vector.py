"""Many copies of an environment, stepped together in this process or in worker processes.

Copies run on their own: each is reset when its caller wants, and any set of them may be stepped at once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeAlias

from gymnasium.spaces import Space
from pettingzoo import ParallelEnv

from .registration import EnvSpec, make, spec

Observations: TypeAlias = dict[str, Any]
Infos: TypeAlias = dict[str, dict[str, Any]]
StepResult: TypeAlias = tuple[Observations, dict[str, float], dict[str, bool], dict[str, bool], Infos]
Builder: TypeAlias = "Callable[[], ParallelEnv[str, Any, Any]]"


class VectorEnv(ABC):
    """Copies of one environment, by index."""

    num_envs: int
    possible_agents: list[str]
    state_space: Space[Any] | None
    """None where the environment has no state."""
    spec: EnvSpec | None

    @abstractmethod
    def reset(
        self, index: int, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observations, Infos]:
        """Start an episode in one copy."""

    @abstractmethod
    def step(self, actions: Mapping[int, Mapping[str, Any]]) -> dict[int, StepResult]:
        """One turn of some copies, at once; `actions[index][agent]`."""

    @abstractmethod
    def state(self, index: int) -> Any:
        """The state of one copy; None where the environment has none."""

    @abstractmethod
    def agents(self, index: int) -> list[str]:
        """Who is live in one copy."""

    @abstractmethod
    def observation_space(self, agent: str) -> Space[Any]:
        """What an agent reads, in any copy."""

    @abstractmethod
    def action_space(self, agent: str) -> Space[Any]:
        """What an agent writes, in any copy."""

    @abstractmethod
    def close(self) -> None:
        """Let go of all copies; twice does nothing."""

    def __enter__(self) -> VectorEnv:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class SyncVector(VectorEnv):
    """Copies in this process, one after the other: best where a turn takes less than a message between processes.

    Args:
        env: an id, a specification, or a function that builds an environment.
        num_envs: copies, at least 1.
        kwargs: arguments of the environment.
    """

    def __init__(self, env: str | EnvSpec | Builder, num_envs: int, **kwargs: Any):
        build = builder(env, num_envs, kwargs)
        self.num_envs = num_envs
        self.envs = [build() for _ in range(num_envs)]
        first = self.envs[0]
        self.possible_agents = list(first.possible_agents)
        self.state_space = getattr(first, "state_space", None)
        self.spec = getattr(first, "spec", None)

    def reset(
        self, index: int, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observations, Infos]:
        observations, infos = self.envs[index].reset(seed=seed, options=options)
        return observations, infos

    def step(self, actions: Mapping[int, Mapping[str, Any]]) -> dict[int, StepResult]:
        return {index: self.envs[index].step(dict(replies)) for index, replies in actions.items()}

    def state(self, index: int) -> Any:
        return state_or_none(self.envs[index])

    def agents(self, index: int) -> list[str]:
        # before its first reset an environment need not have any
        return list(getattr(self.envs[index], "agents", ()))

    def observation_space(self, agent: str) -> Space[Any]:
        space: Space[Any] = self.envs[0].observation_space(agent)
        return space

    def action_space(self, agent: str) -> Space[Any]:
        space: Space[Any] = self.envs[0].action_space(agent)
        return space

    def close(self) -> None:
        for env in self.envs:
            env.close()


def builder(env: str | EnvSpec | Builder, num_envs: int, kwargs: Mapping[str, Any]) -> Builder:
    """What builds one copy.

    Raises:
        ValueError: if there are no copies.
        LookupError: if there is no environment of this id; before any is built.
    """
    if num_envs < 1:
        raise ValueError(f"num_envs must be at least 1, got {num_envs}")
    if isinstance(env, str):
        env = spec(env)
    return partial(make, env, **kwargs) if isinstance(env, EnvSpec) else partial(env, **kwargs)


def state_or_none(env: ParallelEnv[str, Any, Any]) -> Any:
    """The environment's state; None where it has none."""
    try:
        return env.state()
    except NotImplementedError:
        return None
