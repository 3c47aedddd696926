"""Action masks in observations, for libraries that look for them there."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Dict, Space
from pettingzoo import ParallelEnv

from ..spaces.masks import MASK, OBSERVATION, flat_mask, options_of
from .view import View


class MaskedObservations(View):
    """Observations `{"observation": …, "action_mask": …}`, with the mask out of the info or, without one, all ones.

    The convention of PettingZoo's classic games, which RLlib, Tianshou, TorchRL and MaskablePPO read.

    Args:
        env: a parallel environment whose actions are choices.
        agents: whose view it is; None: everybody's.

    Raises:
        TypeError: if a viewer's actions are no choices.
    """

    def __init__(self, env: ParallelEnv[str, Any, Any], agents: Iterable[str] | None = None):
        super().__init__(env, agents)
        self._sizes = {agent: sum(options_of(env.action_space(agent))) for agent in self.viewers}
        for agent, size in self._sizes.items():
            if not size:
                raise TypeError(f"MaskedObservations needs actions that are choices, got {env.action_space(agent)}")
            mask = Box(0, 1, (size,), np.int8)
            self.observation_spaces[agent] = Dict({OBSERVATION: env.observation_space(agent), MASK: mask})

    def observation_space(self, agent: str) -> Space[Any]:
        return self.observation_spaces[agent]

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
        observations, infos = self.env.reset(seed=seed, options=options)
        return self._masked(observations, infos), _without(infos)

    def step(self, actions: dict[str, Any]) -> tuple[Any, ...]:
        observations, rewards, terminations, truncations, infos = self.env.step(actions)
        return self._masked(observations, infos), rewards, terminations, truncations, _without(infos)

    def _masked(self, observations: dict[str, Any], infos: dict[str, dict[str, Any]]) -> dict[str, Any]:
        seen = dict(observations)
        for agent, size in self._sizes.items():
            if agent in seen:
                told = infos.get(agent, {}).get(MASK)
                mask = np.ones(size, np.int8) if told is None else flat_mask(told).astype(np.int8)
                seen[agent] = {OBSERVATION: seen[agent], MASK: mask}
        return seen


def _without(infos: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {agent: {name: value for name, value in info.items() if name != MASK} for agent, info in infos.items()}
