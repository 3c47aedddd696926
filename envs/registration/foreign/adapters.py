"""Wrapper that adapts agent names and text actions of environments of other libraries to policies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from gymnasium.spaces import Space, Text
from pettingzoo import ParallelEnv
from pettingzoo.utils import BaseParallelWrapper

from ...core import ResetResult, StepResult, answer_in
from ...spaces import OpenText


class FittedActions(BaseParallelWrapper[str, Any, Any]):
    """Converts agent names to texts (0 to "0"), and replies to elements of the agents' `Text` action spaces.

    The text before "</think>" and characters outside the charset are removed, long texts are cut, and short texts are
    padded with a character of the space. Infos count the replies that were changed in these ways:
    `metric/cleaned_replies`, `metric/cut_replies` and `metric/padded_replies`.
    """

    def __init__(self, env: ParallelEnv[Any, Any, Any]):
        super().__init__(env)
        self._inner = {str(agent): agent for agent in env.possible_agents}
        if len(self._inner) < len(env.possible_agents):
            raise ValueError(f"agents must have different names as texts, got {env.possible_agents}")
        self.possible_agents = list(self._inner)

    @property
    def agents(self) -> list[str]:
        return [str(agent) for agent in self.env.agents]

    def observation_space(self, agent: str) -> Space[Any]:
        space: Space[Any] = self.env.observation_space(self._inner[agent])
        return space

    def action_space(self, agent: str) -> Space[Any]:
        space: Space[Any] = self.env.action_space(self._inner[agent])
        return space

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> ResetResult:
        observations, infos = self.env.reset(seed=seed, options=options)
        return _named(observations), _named(infos)

    def step(self, actions: dict[str, Any]) -> StepResult:
        counts: Counter[str] = Counter()
        fitted = {self._inner[agent]: self._fitted(agent, action, counts) for agent, action in actions.items()}
        observations, rewards, terminations, truncations, infos = map(_named, self.env.step(fitted))
        counted = {agent: {**infos.get(agent, {}), **counts} for agent in observations}
        return observations, rewards, terminations, truncations, counted

    def _fitted(self, agent: str, action: Any, counts: Counter[str]) -> Any:
        space = self.action_space(agent)
        if not isinstance(space, Text) or not isinstance(action, str):
            return action
        answer = answer_in(action)
        is_open = isinstance(space, OpenText)
        clean = "".join(letter for letter in answer if is_open or letter in space.character_set)
        cut = clean[: space.max_length]
        text = cut.ljust(space.min_length, " " if is_open or " " in space.character_set else min(space.character_set))
        changes = {"cleaned": clean != answer, "cut": cut != clean, "padded": text != cut}
        counts.update(f"metric/{name}_replies" for name, is_changed in changes.items() if is_changed)
        return text


def _named(part: Mapping[Any, Any]) -> dict[str, Any]:
    return {str(agent): value for agent, value in part.items()}
