"""Vectorized environments without automatic resets: base class, and copies in this process."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeAlias, TypeVar

from gymnasium.spaces import Space
from pettingzoo import ParallelEnv

from ..core import Interests, ResetResult, StepResult, declared_interests
from ..registration.registry import EnvSpec, make, spec
from ..registration.turn_limit import declared_turn_limit
from .faults import Course, EnvironmentFault, FaultWatch, name_of

Builder: TypeAlias = "Callable[[], ParallelEnv[str, Any, Any]]"
Result = TypeVar("Result")


class VectorEnv(ABC):
    """Vectorized environment: copies, of which the caller resets each by its index and steps any subset.

    `reset` and `step` wait for their results. `send_reset` and `send` return immediately, and `ready` returns the
    results later. All methods check the values that the environment returns, and raise an `EnvironmentFault` with the
    agent, the seed and the turn if a value is invalid.
    """

    num_envs: int
    possible_agents: list[str]
    state_space: Space[Any] | None
    """Space of `state`. None: the environment has no state."""
    spec: EnvSpec | None
    name: str
    """Id of the environment, else `metadata["name"]`, else the class name."""
    turn_limit: int | None = None
    """Maximum number of joint turns per episode. None: unknown."""
    interests: Interests = "common"
    """Relation of the agents' rewards; see `TextParallelEnv.interests`."""
    courses: list[Course]
    """Seed, options and actions of each copy's current episode."""
    _observation_spaces: dict[str, Space[Any]]
    _action_spaces: dict[str, Space[Any]]

    @abstractmethod
    def reset(self, index: int, seed: int | None = None, options: dict[str, Any] | None = None) -> ResetResult:
        """Start an episode in the environment copy `index`."""

    @abstractmethod
    def step(self, actions: Mapping[int, Mapping[str, Any]]) -> dict[int, StepResult]:
        """Step some copies with `actions[index][agent]`."""

    @abstractmethod
    def send_reset(self, index: int, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """Request a reset of one copy, without waiting. Results of earlier requests to this copy are dropped."""

    @abstractmethod
    def send(self, actions: Mapping[int, Mapping[str, Any]]) -> None:
        """Request a step of some copies with `actions[index][agent]`, without waiting."""

    @abstractmethod
    def ready(self, timeout_s: float | None = None) -> dict[int, StepResult]:
        """Return the results that arrived since the last call, by copy index. Results of resets have no rewards.

        Args:
            timeout_s: maximum time in seconds to wait for the first result. None: no maximum.
        """

    def lost(self) -> dict[int, EnvironmentFault]:
        """Return the errors of episodes that were aborted since the last call, by copy index."""
        return {}

    @abstractmethod
    def state(self, index: int) -> Any:
        """Return the state of a copy, or None if the environment has no state."""

    @abstractmethod
    def agents(self, index: int) -> list[str]:
        """Return the live agents of a copy."""

    def observation_space(self, agent: str) -> Space[Any]:
        return self._observation_spaces[agent]

    def action_space(self, agent: str) -> Space[Any]:
        return self._action_spaces[agent]

    @abstractmethod
    def close(self) -> None:
        """Close all copies. Further calls have no effect."""

    def __enter__(self) -> VectorEnv:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _locate(self, fault: EnvironmentFault, index: int) -> None:
        fault.env, fault.course, fault.copy = self.name, self.courses[index], index


class SyncVector(VectorEnv):
    """Vectorized environment in this process: copies are stepped one after another. Suited to fast environments.

    Args:
        env: id, specification, or function that builds an environment.
        num_envs: number of copies, at least 1.
        kwargs: arguments of the environment.
    """

    def __init__(self, env: str | EnvSpec | Builder, num_envs: int, **kwargs: Any):
        build = builder(env, num_envs, kwargs)
        self.num_envs = num_envs
        self.envs = [build() for _ in range(num_envs)]
        first = self.envs[0]
        self.possible_agents = list(first.possible_agents)
        self._observation_spaces = {agent: first.observation_space(agent) for agent in self.possible_agents}
        self._action_spaces = {agent: first.action_space(agent) for agent in self.possible_agents}
        self.state_space = getattr(first, "state_space", None)
        self.spec = getattr(first, "spec", None)
        self.name = name_of(first)
        self.turn_limit = declared_turn_limit(first)
        self.interests = declared_interests(first)
        self.courses = [Course() for _ in self.envs]
        self._watches = [FaultWatch(env) for env in self.envs]
        self._arrived: dict[int, StepResult] = {}

    def reset(self, index: int, seed: int | None = None, options: dict[str, Any] | None = None) -> ResetResult:
        self.courses[index] = Course(seed, options)
        return self._located(index, self._watches[index].reset, seed, options)

    def step(self, actions: Mapping[int, Mapping[str, Any]]) -> dict[int, StepResult]:
        results = {}
        for index, replies in actions.items():
            self.courses[index].actions.append(dict(replies))
            results[index] = self._located(index, self._watches[index].step, replies)
        return results

    def send_reset(self, index: int, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        self._arrived[index] = as_step(self.reset(index, seed, options))

    def send(self, actions: Mapping[int, Mapping[str, Any]]) -> None:
        self._arrived |= self.step(actions)

    def ready(self, timeout_s: float | None = None) -> dict[int, StepResult]:
        arrived, self._arrived = self._arrived, {}
        return arrived

    def state(self, index: int) -> Any:
        return self._located(index, self._watches[index].state)

    def agents(self, index: int) -> list[str]:
        # The PettingZoo API does not require `agents` before the first reset.
        return list(getattr(self.envs[index], "agents", ()))

    def close(self) -> None:
        for env in self.envs:
            env.close()

    def _located(self, index: int, call: Callable[..., Result], *arguments: Any) -> Result:
        try:
            return call(*arguments)
        except EnvironmentFault as fault:
            self._locate(fault, index)
            raise


def builder(env: str | EnvSpec | Builder, num_envs: int, kwargs: Mapping[str, Any]) -> Builder:
    """Return a function that builds one copy of an environment. Raises LookupError if the id is unknown."""
    if num_envs < 1:
        raise ValueError(f"num_envs={num_envs} must be at least 1")
    if isinstance(env, str):
        env = spec(env)
    return partial(make, env, **kwargs) if isinstance(env, EnvSpec) else partial(env, **kwargs)


def as_step(result: ResetResult) -> StepResult:
    """Convert the result of `reset` to a result of `step` whose rewards, terminations and truncations are empty."""
    observations, infos = result
    return observations, {}, {}, {}, infos
