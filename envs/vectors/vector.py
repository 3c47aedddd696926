"""Many copies of an environment, stepped together in this process or in worker processes.

Copies run on their own: each is reset when its caller wants, and any set of them may be stepped at once. `step` waits
for all of them; `send_reset` and `send` only begin, and `ready` gives the results that have arrived, so that a caller
can decide for some copies while others are still at work.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeAlias

from gymnasium.spaces import Space
from pettingzoo import ParallelEnv

from ..registration.registry import EnvSpec, make, spec
from ..registration.turn_limit import declared_turn_limit
from .faults import Course, EnvironmentFault, FaultWatch, Infos, Observations, StepResult, name_of

Builder: TypeAlias = "Callable[[], ParallelEnv[str, Any, Any]]"


class VectorEnv(ABC):
    """Copies of one environment, by index.

    What an environment returns is checked here, once for all who use it: every method below raises an
    `EnvironmentFault` that names agent, seed and turn where a copy breaks its contract.
    """

    num_envs: int
    possible_agents: list[str]
    state_space: Space[Any] | None
    """None where the environment has no state."""
    spec: EnvSpec | None
    name: str
    """Id of the environment; of one that is not registered, the name that it gives itself."""
    turn_limit: int | None = None
    """Largest number of joint turns of an episode that the environment declares. None: it declares none, and an episode
    may never end."""
    courses: list[Course]
    """Course of each copy's present episode: seed, options and actions, from which it can be played again."""

    @abstractmethod
    def reset(
        self, index: int, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observations, Infos]:
        """Start an episode in one copy."""

    @abstractmethod
    def step(self, actions: Mapping[int, Mapping[str, Any]]) -> dict[int, StepResult]:
        """One turn of some copies, at once; `actions[index][agent]`."""

    @abstractmethod
    def send_reset(self, index: int, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """Begin to start an episode in one copy; what was begun there before is forgotten."""

    @abstractmethod
    def send(self, actions: Mapping[int, Mapping[str, Any]]) -> None:
        """Begin a turn of some copies; `actions[index][agent]`."""

    @abstractmethod
    def ready(self, timeout_s: float | None = None) -> dict[int, StepResult]:
        """Results that arrived since the last call, by copy. A reset's result has empty rewards and terminations.

        Args:
            timeout_s: seconds to wait if there is nothing yet; None waits for at least one, if one was begun.
        """

    def lost(self) -> dict[int, EnvironmentFault]:
        """Episodes that were given up since the last call, by copy, each with its fault."""
        return {}

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

    def _locate(self, fault: EnvironmentFault, index: int) -> None:
        """Fill in what is known here of where it happened."""
        fault.env, fault.course, fault.copy = self.name, self.courses[index], index


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
        self.name = name_of(first)
        self.turn_limit = declared_turn_limit(first)
        self.courses = [Course() for _ in self.envs]
        self._watches = [FaultWatch(first) for _ in self.envs]
        self._arrived: dict[int, StepResult] = {}

    def reset(
        self, index: int, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observations, Infos]:
        self.courses[index] = Course(seed, options)
        try:
            return self._watches[index].reset(self.envs[index], seed, options)
        except EnvironmentFault as fault:
            self._locate(fault, index)
            raise

    def step(self, actions: Mapping[int, Mapping[str, Any]]) -> dict[int, StepResult]:
        results = {}
        for index, replies in actions.items():
            self.courses[index].actions.append(dict(replies))
            try:
                results[index] = self._watches[index].step(self.envs[index], replies)
            except EnvironmentFault as fault:
                self._locate(fault, index)
                raise
        return results

    def send_reset(self, index: int, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        self._arrived[index] = as_step(self.reset(index, seed, options))

    def send(self, actions: Mapping[int, Mapping[str, Any]]) -> None:
        self._arrived |= self.step(actions)

    def ready(self, timeout_s: float | None = None) -> dict[int, StepResult]:
        arrived, self._arrived = self._arrived, {}
        return arrived

    def state(self, index: int) -> Any:
        try:
            return self._watches[index].state(self.envs[index])
        except EnvironmentFault as fault:
            self._locate(fault, index)
            raise

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


def as_step(result: tuple[Observations, Infos]) -> StepResult:
    """A reset in the form of a turn in which nobody earned anything and nothing ended."""
    observations, infos = result
    return observations, {}, {}, {}, infos
