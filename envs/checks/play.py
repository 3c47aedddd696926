"""Episodes played for the record, so that rules can look at them and compare them."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from pettingzoo import ParallelEnv

from ..registration.registry import EnvSpec
from ..registration.registry import spec as spec_of
from ..spaces import OpenText, sampled

Env: TypeAlias = "ParallelEnv[str, Any, Any]"
Chooser: TypeAlias = Callable[[str, Any, random.Random], Any]
"""(agent, observation, generator) -> action."""


class CheckFailure(AssertionError):
    """A rule that an environment breaks.

    Args:
        rule: its name.
        message: one sentence: what was seen, and the fix.
    """

    def __init__(self, rule: str, message: str):
        super().__init__(f"{rule}: {message}")
        self.rule = rule
        self.message = message

    def __reduce__(self) -> tuple[Any, ...]:
        return CheckFailure, (self.rule, self.message)


class DoesNotApply(Exception):
    """The rule says nothing about this environment."""


@dataclass
class Call:
    """One call of `reset` or `step` and what it returned."""

    name: str
    """"reset()" or "step 3"."""
    movers: list[str]
    """Who was live before the call: for reset, after it."""
    actions: Mapping[str, Any] | None
    returned: Any
    agents: list[str]
    """Who is live after the call."""
    state: Any = None


@dataclass
class Record:
    """An episode: its calls, in order."""

    calls: list[Call] = field(default_factory=list)

    @property
    def actions(self) -> list[Mapping[str, Any]]:
        return [call.actions for call in self.calls if call.actions is not None]

    @property
    def has_ended(self) -> bool:
        return not self.calls[-1].agents


def reset(env: Env, seed: int | None, options: dict[str, Any] | None = None) -> Call:
    """`env.reset`, recorded."""
    returned = env.reset(seed=seed) if options is None else env.reset(seed=seed, options=options)
    return Call("reset()", list(env.agents), None, returned, list(env.agents), state_of(env))


def step(env: Env, actions: Mapping[str, Any], number: int) -> Call:
    """`env.step`, recorded."""
    movers = list(env.agents)
    returned = env.step(dict(actions))
    return Call(f"step {number}", movers, actions, returned, list(env.agents), state_of(env))


def state_of(env: Env) -> Any:
    """The environment's state, or None where it has none."""
    if not callable(getattr(env.unwrapped, "state", None)):  # some games keep data of their own under this name
        return None
    try:
        return env.state()
    except NotImplementedError:
        return None


def play(env: Env, seed: int, choose: Chooser | None = None, max_steps: int = 1000) -> Iterator[Call]:
    """An episode of chosen actions; each call is yielded as it comes."""
    rng = random.Random(seed)
    chooser = choose or Babbler(env, seed)
    call = reset(env, seed)
    yield call
    for number in range(1, max_steps + 1):
        if not call.agents:
            return
        observations = call.returned[0]
        actions = {agent: chooser(agent, observations[agent], rng) for agent in call.agents}
        call = step(env, actions, number)
        yield call


def replay(env: Env, seed: int | None, actions: Sequence[Mapping[str, Any]], options: Any = None) -> Iterator[Call]:
    """An episode of given actions."""
    yield reset(env, seed, options)
    yield from resume(env, actions)


def resume(env: Env, actions: Sequence[Mapping[str, Any]], first: int = 0) -> Iterator[Call]:
    """The rest of an episode, from the given turn on."""
    for number in range(first, len(actions)):
        yield step(env, actions[number], number + 1)


def recorded(calls: Iterator[Call]) -> Record:
    """The calls, with copies of what they returned, as later calls might change the originals."""
    record = Record()
    for call in calls:
        call.returned, call.state = deepcopy((call.returned, call.state))
        record.calls.append(call)
    return record


class Babbler:
    """Actions without sense but in the space; replies to a text are made of its own words and lines.

    Random letters alone would never leave the first branch of an environment's parser.
    """

    def __init__(self, env: Env, seed: int):
        self._spaces = {agent: deepcopy(env.action_space(agent)) for agent in env.possible_agents}
        for number, agent in enumerate(env.possible_agents):
            self._spaces[agent].seed(1000 * seed + number)

    def __call__(self, agent: str, observation: Any, rng: random.Random) -> Any:
        space = self._spaces[agent]
        if isinstance(space, OpenText):
            if isinstance(observation, str) and rng.random() < 0.8:
                return self._echo(observation, rng)[: space.max_length].ljust(space.min_length)
            return space.sample()
        mask = observation.get("action_mask") if isinstance(observation, Mapping) else None
        return space.sample() if mask is None else sampled(space, mask)

    @staticmethod
    def _echo(text: str, rng: random.Random) -> str:
        if rng.random() < 0.3:
            return rng.choice(text.splitlines() or [""])
        words = text.split() or [""]
        start = rng.randrange(len(words))
        return " ".join(words[start : start + rng.randint(1, 20)])


def difference(one: Any, other: Any, path: str = "") -> str | None:
    """Where two records of the same episode differ first, in words; None if they are equal."""
    if isinstance(one, Record) and isinstance(other, Record):
        for mine, theirs in zip(one.calls, other.calls, strict=False):
            for name in ("returned", "agents", "state"):
                found = difference(getattr(mine, name), getattr(theirs, name), f"{name} of {mine.name}")
                if found:
                    return found
        return None if len(one.calls) == len(other.calls) else "one episode is longer than the other"
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
    if isinstance(one, float) and math.isnan(one) and math.isnan(other):
        return None
    return None if one == other else f"{path}: {_short(one)} and {_short(other)}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 120 else f"{text[:40]} ... {text[-70:]}"


@dataclass
class Subject:
    """What `check_env` checks."""

    build: Callable[[], Env]
    """A new instance at each call."""
    spec: EnvSpec | None
    choose: Chooser | None
    """Who acts; None: words of the observation for texts, samples of the space for others."""
    seeds: tuple[int, ...]
    max_steps: int
    _records: dict[int, Record] = field(default_factory=dict)

    @classmethod
    def of(cls, env: Any, choose: Chooser | None, seeds: tuple[int, ...], max_steps: int) -> Subject:
        """The subject of an id, a specification, an environment, or a function that builds one."""
        if isinstance(env, str):
            env = spec_of(env)
        if isinstance(env, EnvSpec):
            return cls(env.make, env, choose, seeds, max_steps)
        if isinstance(env, ParallelEnv):
            return cls(lambda: deepcopy(env), None, choose, seeds, max_steps)
        if callable(env):
            return cls(env, None, choose, seeds, max_steps)
        raise TypeError(f"check_env takes an id, an EnvSpec, a ParallelEnv or a function that builds one, got {env!r}")

    @property
    def is_text(self) -> bool:
        """Whether all actions are open texts."""
        env = self.build()
        return all(isinstance(env.action_space(agent), OpenText) for agent in env.possible_agents)

    @property
    def is_portable(self) -> bool:
        """Whether another process can build it, from a specification in JSON."""
        try:
            return self.spec is not None and '"__main__:' not in self.spec.to_json()
        except ValueError:
            return False

    def played(self, env: Env, seed: int) -> Iterator[Call]:
        """An episode, call by call."""
        return play(env, seed, self.choose, self.max_steps)

    def record(self, seed: int) -> Record:
        """An episode of this seed, played once."""
        if seed not in self._records:
            self._records[seed] = recorded(self.played(self.build(), seed))
        return self._records[seed]

    def calls(self, steps_only: bool = False) -> Iterator[Call]:
        """All calls of all recorded episodes."""
        for seed in self.seeds:
            for call in self.record(seed).calls:
                if call.actions is not None or not steps_only:
                    yield call
