"""The environment under test: how to get new copies of it, and the episodes all rules look at."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from pettingzoo import ParallelEnv

from ..registration.registry import EnvSpec
from ..registration.registry import spec as spec_of
from ..spaces import OpenText
from .play import Call, Chooser, Env, Record, play, recorded


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
