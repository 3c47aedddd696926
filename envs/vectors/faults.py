"""Checks of the values that an environment returns, and the exception for faulty environments."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, SupportsFloat, TypeAlias

import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv

from ..._errors import UserError
from ..._functions import called
from ..core import Infos, ResetResult
from ..core import StepResult as StepResult
from ..spaces import MASK, OBSERVATION, flat_mask, has_mask, mask_problem, movers_of, options_of

Check: TypeAlias = Callable[[Any], "str | None"]  # function: value -> description of its fault; None: no fault
STEP_PARTS = ("observations", "rewards", "terminations", "truncations", "infos")
NUMBERS = ("reward/", "metric/")  # prefixes of numeric entries of infos
MAX_SHOWN = 60  # maximum number of characters of an invalid value in a message


@dataclass(slots=True)
class Course:
    """Seed, options and joint actions of an episode, with which the episode can be replayed."""

    seed: int | None = None
    options: dict[str, Any] | None = None
    actions: list[dict[str, Any]] = field(default_factory=list)


class EnvironmentFault(UserError):
    """An environment raised an error, hung, ended its process, or returned an invalid value. The message is one line.

    Attributes:
        problem: description of the fault.
        agent: agent whose value is invalid. None: the fault does not belong to a single agent.
        env: id or name of the environment.
        course: seed, options and actions of the episode.
        turn: number of the joint turn, from 1. 0: the reset.
        copy: index of the environment copy.
        episode: index of the episode in its collector.
        update: number of the update, from 1. None: not in training.
        command: command that replays the episode. None: the episode was not saved.
        details: traceback of an error in a worker process, else empty.
    """

    def __init__(self, problem: str, agent: str | None = None, details: str = ""):
        super().__init__(problem)
        self.problem = problem
        self.agent = agent
        self.details = details
        self.env = "the environment"
        self.course = Course()
        self.copy: int | None = None
        self.episode: int | None = None
        self.update: int | None = None
        self.command: str | None = None

    @property
    def seed(self) -> int | None:
        return self.course.seed

    @property
    def turn(self) -> int:
        return len(self.course.actions)

    def __str__(self) -> str:
        places = {"update": self.update, "episode": self.episode, "seed": self.seed, "agent": self.agent}
        where = [f"{name} {value}" for name, value in places.items() if value is not None]
        where.append(f"turn {self.turn}" if self.turn else "reset")
        again = f"; replay it with: {self.command}" if self.command else ""
        return " ".join(f"{self.env}, {', '.join(where)}: {self.problem}{again}".split())


class FaultWatch:
    """Resets and steps an environment. Raises EnvironmentFault for errors and for invalid values."""

    def __init__(self, env: ParallelEnv[str, Any, Any]):
        self._env = env
        self.possible_agents = list(env.possible_agents)
        self._checks = {agent: check_of(env.observation_space(agent)) for agent in self.possible_agents}
        self._options = {agent: options_of(env.action_space(agent)) for agent in self.possible_agents}
        self._masked = {agent for agent in self.possible_agents if has_mask(env.observation_space(agent))}
        self._state_check = check_of(getattr(env, "state_space", None))
        self._waiting: list[str] = []  # live agents that do not act in the next turn
        self._ended: set[str] = set()  # terminated or truncated agents
        self._gone: set[str] = set()  # ended agents that are no longer in `env.agents`

    def reset(self, seed: int | None, options: dict[str, Any] | None) -> ResetResult:
        self._ended, self._gone = set(), set()
        result = called("reset", lambda: self._env.reset(seed=seed, options=options), EnvironmentFault)
        if not isinstance(result, tuple) or len(result) != 2:
            raise EnvironmentFault(f"reset must return (observations, infos), got {_shown(result)}")
        observations, infos = result
        _check_mapping("observations", observations)
        if not observations:
            raise EnvironmentFault("reset returned no observation, but an episode needs at least one agent")
        for agent, observation in observations.items():
            self._check_observation(agent, observation)
        self._check_masks(observations, infos := self._infos(infos))
        return observations, infos

    def step(self, actions: Mapping[str, Any]) -> StepResult:
        result = called("step", lambda: self._env.step(dict(actions)), EnvironmentFault)
        if not isinstance(result, tuple) or len(result) != 5:
            raise EnvironmentFault(f"step must return ({', '.join(STEP_PARTS)}), got {_shown(result)}")
        for name, part in zip(STEP_PARTS, result, strict=True):
            _check_mapping(name, part)
        observations, rewards, terminations, truncations, infos = result
        earned: dict[str, float] = {}
        present = dict.fromkeys([*actions, *self._waiting])
        for agent in present:
            try:
                observation, reward = observations[agent], rewards[agent]
                flags = terminations[agent], truncations[agent]
            except KeyError:
                lacking = [name for name, part in zip(STEP_PARTS[:4], result, strict=False) if agent not in part]
                raise EnvironmentFault(
                    f"step returned no entry for {agent!r} in {', '.join(lacking)}; every agent of the turn needs one",
                    agent,
                ) from None
            number = reward if type(reward) is float else _number(reward)
            if number is None or not math.isfinite(number):
                raise EnvironmentFault(
                    f"the reward of {agent!r} is {_shown(reward)}, but must be a finite number", agent
                )
            earned[agent] = number
            for name, flag in zip(STEP_PARTS[2:4], flags, strict=True):
                if type(flag) is not bool and not isinstance(flag, (bool, np.bool_, int, np.integer)):
                    raise EnvironmentFault(f"{name} of {agent!r} is {_shown(flag)}, but must be a bool", agent)
            self._check_observation(agent, observation)
            if flags[0] or flags[1]:
                self._ended.add(agent)
        if len(observations) > len(present) or self._ended:
            self._check_nobody_joins(observations, present)
        self._check_masks(observations, infos := self._infos(infos))
        return observations, earned, terminations, truncations, infos

    def state(self) -> Any:
        """Return the state, or None if the environment has no state."""
        # In some games of PettingZoo, `state` is not a method.
        if not callable(getattr(self._env.unwrapped, "state", None)):
            return None
        try:
            state = called("state", self._env.state, EnvironmentFault)
        except EnvironmentFault as fault:
            if isinstance(fault.__cause__, NotImplementedError):
                return None
            raise
        if problem := self._state_check(state):
            raise EnvironmentFault(f"the state {problem}")
        return state

    def _check_observation(self, agent: str, observation: Any) -> None:
        check = self._checks.get(agent)
        if check is None:
            raise EnvironmentFault(f"{agent!r} is not in possible_agents={self.possible_agents}", agent)
        if problem := check(observation):
            raise EnvironmentFault(f"the observation of {agent!r} {problem}", agent)

    def _check_nobody_joins(self, observations: dict[str, Any], present: Mapping[str, Any]) -> None:
        for agent in observations:
            if agent not in self._checks:
                raise EnvironmentFault(f"{agent!r} is not in possible_agents={self.possible_agents}", agent)
            if agent not in present and agent not in self._ended:
                raise EnvironmentFault(
                    f"{agent!r} joins the running episode, but agents may join only at a reset", agent
                )
        live = set(self._env.agents)
        if again := sorted(self._gone & live):
            raise EnvironmentFault(f"{again[0]!r} has left the episode and joins it again", again[0])
        self._gone |= self._ended - live

    def _check_masks(self, observations: dict[str, Any], infos: Infos) -> None:
        live = [agent for agent in self._options if agent in observations and agent not in self._ended]
        movers = movers_of(live, infos)
        self._waiting = [agent for agent in live if agent not in movers] if len(movers) < len(live) else []
        for agent in movers:
            options = self._options[agent]
            masks = [info[MASK]] if (info := infos.get(agent)) and MASK in info else []
            if agent in self._masked:
                masks.append(observations[agent][MASK])
            for mask in masks:
                if problem := mask_problem(mask, options):
                    raise EnvironmentFault(f"the action mask of {agent!r} {problem}", agent)
            if len(masks) == 2 and (problem := mask_problem(flat_mask(masks[0]) & flat_mask(masks[1]), options)):
                raise EnvironmentFault(
                    f"the action mask of {agent!r}, combined from info and observation, {problem}", agent
                )

    def _infos(self, infos: Any) -> Infos:
        _check_mapping("infos", infos)
        for agent, info in infos.items():
            if not info and isinstance(info, dict):
                continue
            _check_mapping(f"infos of {agent!r}", info)
            for name, value in info.items():
                is_number = isinstance(name, str) and name.startswith(NUMBERS)
                if is_number and type(value) is not float and _number(value) is None:
                    raise EnvironmentFault(
                        f"the value of {name!r} in infos of {agent!r} is {_shown(value)}, but must be a number", agent
                    )
        return infos  # type: ignore[no-any-return]


def check_of(space: Any) -> Check:
    """Return a function that checks the type and the shape of a space's values, and that numbers are finite."""
    if isinstance(space, spaces.Text):
        return lambda value: None if isinstance(value, str) else f"is {_shown(value)}, but must be text"
    if isinstance(space, spaces.Box):
        shape = space.shape
        return lambda value: _array_problem(value, shape)
    if has_mask(space):
        check = check_of(space[OBSERVATION])
        return lambda value: (
            check(value[OBSERVATION])
            if isinstance(value, Mapping) and OBSERVATION in value and MASK in value
            else f"is {_shown(value)}, but must have {OBSERVATION!r} and {MASK!r}"
        )
    if isinstance(space, (spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)):
        return lambda value: None if space.contains(value) else f"is {_shown(value)}, which is not in {space}"
    return lambda value: "is None" if value is None else None


def name_of(env: ParallelEnv[str, Any, Any]) -> str:
    """Return the environment's id, else `metadata["name"]`, else the class name."""
    id = getattr(getattr(env, "spec", None), "id", None)
    return str(id or getattr(env, "metadata", {}).get("name") or type(env).__name__)


def _check_mapping(name: str, part: Any) -> None:
    if type(part) is not dict and not isinstance(part, Mapping):
        raise EnvironmentFault(f"{name} must be a dict, got {_shown(part)}")


def _number(value: Any) -> float | None:
    """Convert a real number to a float. Return None for other values, such as strings, complex numbers and lists."""
    if not isinstance(value, SupportsFloat) or np.ndim(value) or np.iscomplexobj(value):  # type: ignore[arg-type]
        return None
    return float(value)


def _array_problem(value: Any, shape: tuple[int, ...]) -> str | None:
    try:
        array = value if isinstance(value, np.ndarray) else np.asarray(value)
    except ValueError:  # lists of different lengths
        array = None
    if array is None or array.dtype.kind not in "fiub":
        return f"is {_shown(value)}, but must be numbers of shape {shape}"
    if array.shape != shape:
        return f"has the shape {array.shape}, but its space has {shape}"
    if array.dtype.kind == "f":
        flat = array.ravel()
        # The dot product takes a fifth of the time of `isfinite`. It may overflow; then the exact test decides.
        if not math.isfinite(flat.dot(flat)) and not np.isfinite(flat).all():
            return f"has numbers that are not finite: {_shown(value)}"
    return None


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return f"a tuple of {len(value)} values"
    text = " ".join(repr(value).split())
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"
