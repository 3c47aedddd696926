"""Shaping by a potential: rewards on the way that leave the best play what it is."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

from pettingzoo import ParallelEnv
from pettingzoo.utils import BaseParallelWrapper

Potential: TypeAlias = Callable[[Any], float]
"""The environment itself, which is to be read only -> how good its present state is, in units of reward."""


class PotentialShaping(BaseParallelWrapper[str, Any, Any]):
    """Each turn pays, besides, how much the potential rose: F = discount * potential(after) - potential(before).

    The potential counts as 0 once an agent's episode has terminated, so that over a whole episode the discounted sum of
    F is -potential(first state), whatever was done: no policy gains by it. A truncated episode keeps its last
    potential, as its value is bootstrapped. `infos` tell the part as `reward/shaping`.

    Source: Ng, Harada and Russell (1999), theorem 1.

    Args:
        env: any parallel environment.
        potential: a function of the environment within all wrappers (`env.unwrapped`).
        discount: the learner's own, 0..1; with another one the theorem does not hold.

    Raises:
        ValueError: if the discount is no such number, or the potential is not finite.
    """

    def __init__(self, env: ParallelEnv[str, Any, Any], potential: Potential, discount: float = 1.0):
        if not 0 <= discount <= 1:
            raise ValueError(f"discount must be 0 to 1, got {discount}")
        super().__init__(env)
        self._potential = potential
        self._discount = discount
        self._before = 0.0

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
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
