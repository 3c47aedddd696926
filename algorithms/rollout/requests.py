"""Requests and rollouts: the episodes of an update, before and after they are played.

Version v of the weights is the state of the policies after v updates.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from torch import Tensor

from ...envs.vectors.faults import EnvironmentFault
from ..config import TrainConfig
from .collector import RolloutCollector, together
from .curriculum import curriculum
from .episode import Episode
from .plays import Plan, grouped_plans

MAX_SEED = 2**31
Weights: TypeAlias = Mapping[str, Mapping[str, Tensor]]
"""`state_dict` of each policy that learns, by the first agent that the policy plays; tensors on the CPU."""


@dataclass(frozen=True, slots=True)
class RolloutRequest:
    """Episodes to play for one update."""

    update: int
    """Number of updates done before this one."""
    version: int
    """Version of the weights that play the episodes."""
    plans: tuple[Plan, ...]
    """The episodes. With `num_turns`: episodes to start, of which only as many as needed are used."""
    first: int
    """Index of the first episode; not used with `num_turns`."""
    num_turns: int | None = None
    """Joint turns per environment copy, continuing unfinished episodes of the last request. None: whole episodes."""

    def indexed_plans(self) -> list[tuple[int, Plan]]:
        """Plans with the indices of their episodes."""
        return list(enumerate(self.plans, start=self.first))


@dataclass(frozen=True, slots=True)
class Rollout:
    """Episodes of a request, played."""

    episodes: list[Episode]
    faults: list[EnvironmentFault] = field(default_factory=list)
    """Faults of the episodes that were skipped."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Seconds by phase, summed over the processes that played."""
    wall_s: float = 0.0
    """Seconds from start to end."""
    state: Mapping[str, Any] | None = None
    """`RolloutCollector.state_dict` after the rollout, if the next request continues its episodes."""


RequestMaker: TypeAlias = Callable[[int, int], RolloutRequest]
"""Makes the request of an update, the first argument, for a version of the weights, the second."""


def request_maker(config: TrainConfig, num_envs: int) -> RequestMaker:
    """Function that makes the requests of a training.

    Args:
        config: source of the seed, the numbers of episodes or turns, and the difficulty schedule.
        num_envs: copies of the environment.
    """
    schedule = None if config.difficulty_schedule is None else curriculum(config.difficulty_schedule)

    def request(update: int, version: int) -> RolloutRequest:
        difficulty = None if schedule is None else schedule(update / config.num_updates)
        if config.turns_per_update is not None:
            seeds = task_seeds(config.seed, update, num_envs * (config.turns_per_update + 1))
            plans = tuple(Plan(seed, difficulty=difficulty) for seed in seeds)
            return RolloutRequest(update, version, plans, 0, config.turns_per_update)
        seeds = task_seeds(config.seed, update, config.rollout_buffer_size // config.num_generations)
        plans = tuple(grouped_plans(seeds, config.num_generations, difficulty))
        return RolloutRequest(update, version, plans, update * config.rollout_buffer_size)

    return request


def task_seeds(seed: int, update: int, count: int) -> list[int]:
    """Seeds of an update's tasks: a function of the run's seed and the update, so that a resumed run draws the same."""
    drawn = np.random.SeedSequence([seed, update]).generate_state(count, np.uint64)
    return [int(value % MAX_SEED) for value in drawn]


def play_request(collector: RolloutCollector, request: RolloutRequest) -> Rollout:
    """Play a request in this process, without other ranks; the collector's policies already have the weights."""
    start = time.perf_counter()
    collector.seconds.clear()
    collector.version = request.version
    if request.num_turns is None:
        episodes = together([collector.play(request.indexed_plans(), len(request.plans))], len(request.plans))
        faults, state = collector.skipped, None
    else:
        episodes, faults = collector.play_turns(request.num_turns, iter(request.plans)), []
        state = collector.state_dict()
    return Rollout(episodes, faults, dict(collector.seconds), time.perf_counter() - start, state)
