"""Replies chosen from a list: the smallest action space of a text environment."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from typing import Any, TypeAlias

import numpy as np
from gymnasium.spaces import Discrete
from numpy.typing import NDArray
from pettingzoo import ParallelEnv

from ..spaces import MASK
from .view import View, require_text

Legality: TypeAlias = Callable[[ParallelEnv[str, Any, Any], str, str], bool]
"""(environment, agent, phrase) -> whether the agent may say it now."""


class PhraseActions(View):
    """Actions as the number of a phrase. Action space: `Discrete(number of phrases)`. Observation space: unchanged.

    Args:
        env: an environment of texts.
        phrases: the replies to choose from: one list for all agents, or one for each.
        agents: whose view it is; None: everybody's.
        is_legal: says of the environment, an agent and a phrase whether the agent may say it now. Infos then have an
            "action_mask" of int8, 1 per legal phrase, as `Discrete.sample` takes it; see `MaskedObservations` for
            libraries that look for it in observations. None: all phrases are legal, and there is no mask.

    Raises:
        ValueError: if a viewer has no phrases.
    """

    def __init__(
        self,
        env: ParallelEnv[str, Any, Any],
        phrases: Sequence[str] | Mapping[str, Sequence[str]],
        agents: Iterable[str] | None = None,
        is_legal: Legality | None = None,
    ):
        super().__init__(env, agents)
        self.is_legal = is_legal
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

    def mask(self, agent: str) -> NDArray[np.int8]:
        """1 per phrase that a viewer may say now.

        Raises:
            ValueError: if that is none.
        """
        assert self.is_legal is not None  # what asks for masks
        mask = np.array([self.is_legal(self.env, agent, phrase) for phrase in self.phrases[agent]], dtype=np.int8)
        if not mask.any():
            raise ValueError(f"none of the {len(mask)} phrases of {agent!r} is legal now; add one that always is")
        return mask

    def _all_told(self, infos: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        told = super()._all_told(infos)
        if self.is_legal is None:
            return told
        live = [agent for agent in self.env.agents if agent in self.viewers]
        return {**told, **{agent: {**told.get(agent, {}), MASK: self.mask(agent)} for agent in live}}


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
