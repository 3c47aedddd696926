"""Wrapper and functions that limit the number of turns per episode."""

from __future__ import annotations

from typing import Any

import gymnasium
from pettingzoo import ParallelEnv
from pettingzoo.utils import BaseParallelWrapper

from ..core import TextParallelEnv

DEFAULT_TURN_LIMIT = 1_000  # maximum turns of an evaluation episode if neither environment nor caller has a limit


class TurnLimit(BaseParallelWrapper):
    """Wrapper that truncates episodes after `max_turns` turns. All agents act together in a turn."""

    def __init__(self, env: ParallelEnv[str, Any, Any], max_turns: int):
        if max_turns < 1:
            raise ValueError(f"max_turns={max_turns} must be at least 1")
        super().__init__(env)
        self.turn_limit = max_turns
        self.agents: list[str] = []
        self._turn = 0

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[dict[str, Any], Any]:
        observations, infos = self.env.reset(seed=seed, options=options)
        self._turn = 0
        self.agents = list(self.env.agents)
        return observations, infos

    def step(self, actions: dict[str, Any]) -> tuple[Any, ...]:
        if not self.agents:
            raise RuntimeError("no episode is running; call reset() first")
        observations, rewards, terminations, truncations, infos = self.env.step(actions)
        self._turn += 1
        if self._turn >= self.turn_limit:
            truncations = {agent: truncations[agent] or not terminations[agent] for agent in truncations}
            self.agents = []
        else:
            self.agents = list(self.env.agents)
        return observations, rewards, terminations, truncations, infos


def declared_turn_limit(env: Any) -> int | None:
    """Return the smallest limit of turns of an environment and its wrappers. None: no known limit.

    Limits are `max_turns` of text environments, `TurnLimit`, Gymnasium's `TimeLimit`, and PettingZoo's `max_cycles`.
    """
    limits = []
    while env is not None:
        if isinstance(env, TextParallelEnv):
            limits.append(env.max_turns)
        elif isinstance(env, TurnLimit):
            limits.append(env.turn_limit)
        elif isinstance(env, gymnasium.wrappers.TimeLimit):
            limits.append(env._max_episode_steps)
        elif "max_cycles" in vars(env):
            limits.append(vars(env)["max_cycles"])
        env = vars(env).get("env", vars(env).get("aec_env"))
    return min((int(limit) for limit in limits if limit is not None), default=None)


def watched_turns(declared: int | None, asked: int | None) -> int | None:
    """Return the number of turns after which the caller must stop an evaluation episode. None: the environment ends it.

    Args:
        declared: limit of the environment (`declared_turn_limit`). None: no known limit.
        asked: limit that the user set. None: `DEFAULT_TURN_LIMIT` if `declared` is None, else no further limit.
    """
    return DEFAULT_TURN_LIMIT if declared is None and asked is None else asked
