"""Rollout requests and results of one update. Version v of the weights are the policies after v updates."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from torch import Tensor

from ...envs.vectors.faults import EnvironmentFault
from ..config import TrainConfig
from .curriculum import curriculum
from .episode import Episode
from .plays import Plan, grouped_plans

MAX_SEED = 2**31
Weights: TypeAlias = Mapping[str, Mapping[str, Tensor]]
"""`state_dict` of each trainable policy, on the CPU. The key is the first agent of the policy."""


@dataclass(frozen=True, slots=True)
class RolloutRequest:
    """Request for the episodes of one update. With `num_turns`, unfinished episodes are continued first."""

    update: int  # number of updates before this one
    version: int  # version of the weights that sample the episodes
    plans: tuple[Plan, ...]  # episodes to play; with `num_turns`, some may be unused
    first: int  # index of the first episode; unused with `num_turns`
    num_turns: int | None = None  # joint turns to play per environment copy; None: whole episodes

    def indexed_plans(self) -> list[tuple[int, Plan]]:
        """Return pairs of episode index and plan."""
        return list(enumerate(self.plans, start=self.first))


@dataclass(frozen=True, slots=True)
class Rollout:
    """Result of a rollout request: episodes, faults of skipped episodes, and durations."""

    episodes: list[Episode]
    faults: list[EnvironmentFault] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)  # per phase, summed over processes
    wall_s: float = 0.0
    state: Mapping[str, Any] | None = None  # of the collector, to continue episodes


RequestMaker: TypeAlias = Callable[[int, int], RolloutRequest]  # arguments: update, version of the weights


def request_maker(config: TrainConfig, num_envs: int) -> RequestMaker:
    """Return a function that makes the rollout requests of a training run with `num_envs` environment copies."""
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
    """Sample the task seeds of an update. A resumed run gets the same seeds."""
    drawn = np.random.SeedSequence([seed, update]).generate_state(count, np.uint64)
    return [int(value % MAX_SEED) for value in drawn]
