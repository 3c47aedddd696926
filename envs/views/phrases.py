"""Replies chosen from a list: the smallest action space of a text environment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from typing import Any

import numpy as np
from gymnasium.spaces import Discrete
from pettingzoo import ParallelEnv

from .view import View, require_text


class PhraseActions(View):
    """Actions as the number of a phrase. Action space: `Discrete(number of phrases)`. Observation space: unchanged.

    Args:
        env: an environment of texts.
        phrases: the replies to choose from: one list for all agents, or one for each.
        agents: whose view it is; None: everybody's.

    Raises:
        ValueError: if a viewer has no phrases.
    """

    def __init__(
        self,
        env: ParallelEnv[str, Any, Any],
        phrases: Sequence[str] | Mapping[str, Sequence[str]],
        agents: Iterable[str] | None = None,
    ):
        super().__init__(env, agents)
        self.phrases = {
            agent: tuple(phrases.get(agent, ()) if isinstance(phrases, Mapping) else phrases) for agent in self.viewers
        }
        for agent, choice in self.phrases.items():
            if not choice:
                raise ValueError(f"{agent!r} has no phrases to choose from; give it at least one")
            require_text(env.action_space(agent), "PhraseActions")
            self.action_spaces[agent] = Discrete(len(choice))

    def acted(self, agent: str, action: Any) -> str:
        return self.phrases[agent][int(np.asarray(action).item())]


def reference_phrases(env: ParallelEnv[str, Any, Any], num_episodes: int = 16) -> dict[str, tuple[str, ...]]:
    """A task's own phrases: the reference replies of its first episodes, without doubles, in order of appearance.

    Args:
        env: a text environment with `reference_reply`; it is not touched.
        num_episodes: seeds from 0 up.

    Raises:
        NotImplementedError: if the environment knows no reference replies.
    """
    played = deepcopy(env)
    phrases: dict[str, dict[str, None]] = {agent: {} for agent in env.possible_agents}
    for seed in range(num_episodes):
        played.reset(seed=seed)
        while played.agents:
            replies = {agent: played.unwrapped.reference_reply(agent) for agent in played.agents}
            for agent, reply in replies.items():
                phrases[agent].setdefault(reply)
            played.step(replies)
    return {agent: tuple(found) for agent, found in phrases.items()}
