"""Wrapper for potential-based reward shaping."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

from pettingzoo import ParallelEnv
from pettingzoo.utils import BaseParallelWrapper

from ..core import ResetResult

Potential: TypeAlias = Callable[[Any], float]
"""Function: environment -> potential of its state, in reward units. It must not change the environment."""


class PotentialShaping(BaseParallelWrapper[str, Any, Any]):
    """Adds potential-based shaping F to the rewards, which does not change the optimal policies.

        F = discount * potential(after) - potential(before)

    When an agent terminates, potential(after) is 0. The discounted sum of F over an episode is then -potential(first
    state), for every policy. When an agent is truncated, potential(after) is kept, because learners bootstrap the value
    of the last state. `infos` contain F as `reward/shaping`.

    Source: Ng, Harada and Russell (1999), theorem 1.

    Args:
        env: any parallel environment.
        potential: function: `env.unwrapped` -> finite number.
        discount: discount factor of the learner, 0 to 1. With another factor, the optimal policies may change.
    """

    def __init__(self, env: ParallelEnv[str, Any, Any], potential: Potential, discount: float = 1.0):
        if not 0 <= discount <= 1:
            raise ValueError(f"discount must be from 0 to 1, got {discount}")
        super().__init__(env)
        self._potential = potential
        self._discount = discount
        self._before = 0.0

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> ResetResult:
        observations, infos = self.env.reset(seed=seed, options=options)
        self._before = self._now()
        return observations, infos

    def step(self, actions: dict[str, Any]) -> tuple[Any, ...]:
        observations, own, terminations, truncations, infos = self.env.step(actions)
        after = self._now()
        rewards, told = {}, {}
        for agent, reward in own.items():
            kept = 0.0 if terminations[agent] else after
            paid = self._discount * kept - self._before
            rewards[agent] = reward + paid
            told[agent] = {**infos[agent], "reward/shaping": paid}
        self._before = after
        return observations, rewards, terminations, truncations, told

    def _now(self) -> float:
        value = float(self._potential(self.env.unwrapped))
        if not math.isfinite(value):
            raise ValueError(f"the potential must be a finite number, got {value}")
        return value
