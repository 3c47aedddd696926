"""Recorded episodes, which the rules of `check_env` test."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from pettingzoo import ParallelEnv

from ..players import Player, RandomPlayer
from ..registration.registry import EnvSpec
from ..registration.registry import spec as spec_of
from ..spaces import OpenText, movers_of

Env: TypeAlias = "ParallelEnv[str, Any, Any]"
Chooser: TypeAlias = Callable[[str, Any, random.Random], Any]  # function (agent, observation, generator) -> action


class CheckFailure(AssertionError):
    """Raised by `check_env` if the environment breaks a rule.

    Args:
        rule: name of the rule.
        message: the fault and the fix.
    """

    def __init__(self, rule: str, message: str):
        super().__init__(rule, message)
        self.rule = rule
        self.message = message

    def __str__(self) -> str:
        return f"{self.rule}: {self.message}"


class Violation(Exception):
    """Raised by the function of a rule if the environment breaks the rule. The message is the fault and the fix."""


class DoesNotApply(Exception):
    """Raised by the function of a rule if the rule does not apply to the environment."""


@dataclass
class Call:
    """One call of `reset` or `step` and its results."""

    name: str  # name of the call in error messages, such as "reset()" or "step 3"
    live: list[str]  # live agents before the call; for `reset`: after the call
    actions: Mapping[str, Any] | None  # None for `reset`
    returned: Any
    agents: list[str]  # live agents after the call
    state: Any  # `state()` after the call; None if the environment has no state

    @property
    def movers(self) -> list[str]:
        """Agents that act in the next turn."""
        return movers_of(self.agents, self.returned[-1])


@dataclass
class Record:
    """Recorded calls of `reset` and `step` in an episode, in time order."""

    calls: list[Call] = field(default_factory=list)

    @property
    def actions(self) -> list[Mapping[str, Any]]:
        return [call.actions for call in self.calls if call.actions is not None]


def reset(env: Env, seed: int | None, options: dict[str, Any] | None = None) -> Call:
    returned = env.reset(seed=seed) if options is None else env.reset(seed=seed, options=options)
    return Call("reset()", list(env.agents), None, returned, list(env.agents), state_of(env))


def step(env: Env, actions: Mapping[str, Any], number: int) -> Call:
    live = list(env.agents)
    returned = env.step(dict(actions))
    return Call(f"step {number}", live, actions, returned, list(env.agents), state_of(env))


def state_of(env: Env) -> Any:
    if not callable(getattr(env.unwrapped, "state", None)):  # in some games, `state` is not a method
        return None
    try:
        return env.state()
    except NotImplementedError:
        return None


def play(env: Env, seed: int, choose: Chooser | None = None, max_steps: int = 1000) -> Iterator[Call]:
    """Play an episode and yield each call of `reset` and `step`. If `choose` is None, actions are random."""
    rng = random.Random(seed)
    choose = choose or random_chooser(env, seed)
    call = reset(env, seed)
    yield call
    for number in range(1, max_steps + 1):
        if not call.agents:
            return
        observations = call.returned[0]
        call = step(env, {agent: choose(agent, observations[agent], rng) for agent in call.movers}, number)
        yield call


def replay(env: Env, seed: int | None, actions: Sequence[Mapping[str, Any]], options: Any = None) -> Iterator[Call]:
    yield reset(env, seed, options)
    yield from resume(env, actions)


def resume(env: Env, actions: Sequence[Mapping[str, Any]], first: int = 0) -> Iterator[Call]:
    """Continue an episode with recorded actions, from index `first` on."""
    for number in range(first, len(actions)):
        yield step(env, actions[number], number + 1)


def recorded(calls: Iterator[Call]) -> Record:
    """Make all calls and record copies of their results, because later calls may change the originals."""
    record = Record()
    for call in calls:
        call.returned, call.state = deepcopy((call.returned, call.state))
        record.calls.append(call)
    return record


def random_chooser(env: Env, seed: int) -> Chooser:
    """Return a function that selects random actions. Most text actions are excerpts from the agent's observation."""
    # Parsers in environments would reject a reply of random characters at its first character.
    spaces = {agent: env.action_space(agent) for agent in env.possible_agents}
    player = RandomPlayer(spaces, 1000 * seed)

    def choose(agent: str, observation: Any, rng: random.Random) -> Any:
        space = spaces[agent]
        if isinstance(space, OpenText) and isinstance(observation, str) and rng.random() < 0.8:
            return _excerpt(observation, rng)[: space.max_length].ljust(space.min_length)
        return player(agent, observation)

    return choose


def as_chooser(player: Player) -> Chooser:
    return lambda agent, observation, rng: player(agent, observation)


def _excerpt(text: str, rng: random.Random) -> str:
    if rng.random() < 0.3:
        return rng.choice(text.splitlines() or [""])
    words = text.split() or [""]
    start = rng.randrange(len(words))
    return " ".join(words[start : start + rng.randint(1, 20)])


def difference(one: Any, other: Any, path: str = "") -> str | None:
    """Describe the first difference between two values or records. None: both are equal."""
    if isinstance(one, Record) and isinstance(other, Record):
        for mine, theirs in zip(one.calls, other.calls, strict=False):
            for name, label in (("returned", "the results"), ("agents", "the agents"), ("state", "the state")):
                found = difference(getattr(mine, name), getattr(theirs, name), f"{label} of {mine.name}")
                if found:
                    return found
        return None if len(one.calls) == len(other.calls) else "the number of turns"
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        return None if np.array_equal(np.asarray(one), np.asarray(other)) else f"{path}: {one!r} and {other!r}"
    if type(one) is not type(other):
        return f"{path}: {type(one).__name__} and {type(other).__name__}"
    if isinstance(one, Mapping):
        if list(one) != list(other):
            return f"{path}: the keys {list(one)} and {list(other)}"
        return next((found for key in one if (found := difference(one[key], other[key], f"{path}[{key!r}]"))), None)
    if isinstance(one, (list, tuple)):
        if len(one) != len(other):
            return f"{path}: {len(one)} and {len(other)} items"
        pairs = zip(one, other, strict=True)
        return next((d for n, (a, b) in enumerate(pairs) if (d := difference(a, b, f"{path}[{n}]"))), None)
    if one == other or (isinstance(one, float) and math.isnan(one) and math.isnan(other)):
        return None
    return f"{path}: {_short(one)} and {_short(other)}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 120 else f"{text[:40]} ... {text[-70:]}"


@dataclass
class Subject:
    """Environment that `check_env` tests, with settings of the test and recorded episodes."""

    build: Callable[[], Env]  # function that builds a new instance
    spec: EnvSpec | None
    choose: Chooser | None  # function that selects the actions; None: random actions
    seeds: tuple[int, ...]
    max_steps: int
    _records: dict[int, Record] = field(default_factory=dict)

    @classmethod
    def of(cls, env: Any, choose: Chooser | None, seeds: tuple[int, ...], max_steps: int) -> Subject:
        if isinstance(env, str):
            env = spec_of(env)
        if isinstance(env, EnvSpec):
            return cls(env.make, env, choose, seeds, max_steps)
        if isinstance(env, ParallelEnv):
            return cls(lambda: deepcopy(env), None, choose, seeds, max_steps)
        if callable(env):
            return cls(env, None, choose, seeds, max_steps)
        raise TypeError(f"check_env takes an id, an EnvSpec, a ParallelEnv or a function that builds one, got {env!r}")

    @cached_property
    def is_text(self) -> bool:
        env = self.build()
        return all(isinstance(env.action_space(agent), OpenText) for agent in env.possible_agents)

    @property
    def is_portable(self) -> bool:
        """True if another process can build the environment from its specification."""
        try:
            return self.spec is not None and '"__main__:' not in self.spec.to_json()
        except ValueError:
            return False

    def record(self, seed: int) -> Record:
        """Return the recorded episode of a seed, which is played only once."""
        if seed not in self._records:
            self._records[seed] = recorded(play(self.build(), seed, self.choose, self.max_steps))
        return self._records[seed]

    def calls(self) -> Iterator[Call]:
        for seed in self.seeds:
            yield from self.record(seed).calls

    def steps(self) -> Iterator[Call]:
        return (call for call in self.calls() if call.actions is not None)
