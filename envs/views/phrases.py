"""View with discrete actions, each of which is the index of a reply in a list."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from typing import Any, TypeAlias

import numpy as np
from gymnasium.spaces import Discrete
from numpy.typing import NDArray
from pettingzoo import ParallelEnv

from ..core import Infos, ResetResult
from ..spaces import MASK, movers_of
from .view import View, require_text

Legality: TypeAlias = Callable[[ParallelEnv[str, Any, Any], str, str], bool]
"""Function (environment, agent, phrase) -> True if the agent may reply with the phrase now."""


class PhraseActions(View):
    """Replaces text actions by phrase indices. Action space: `Discrete(number of phrases)`. Observations: unchanged.

    Args:
        env: a text environment.
        phrases: possible replies, at least one: a list for all agents, or a mapping agent -> list.
        agents: agents whose actions are converted. None: all.
        is_legal: function (environment, agent, phrase) -> True if the phrase is legal now. Infos then contain
            "action_mask": int8, 1 for legal phrases. `MaskedObservations` moves the mask into the observations. None:
            all phrases are legal, and infos contain no mask.
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
                raise ValueError(f"phrases of {agent!r} are empty; give at least one phrase")
            require_text(env.action_space(agent), "PhraseActions")
            self.action_spaces[agent] = Discrete(len(choice))

    def acted(self, agent: str, action: Any) -> str:
        return self.phrases[agent][int(np.asarray(action).item())]

    def mask(self, agent: str) -> NDArray[np.int8]:
        """Return an agent's action mask: int8 [number of phrases], 1 for legal phrases. At least one is legal."""
        assert self.is_legal is not None
        mask = np.array([self.is_legal(self.env, agent, phrase) for phrase in self.phrases[agent]], dtype=np.int8)
        if not mask.any():
            raise ValueError(
                f"none of the {len(mask)} phrases of {agent!r} is legal now; add a phrase that is always legal"
            )
        return mask

    def _converted(self, observations: dict[str, Any], infos: Infos) -> ResetResult:
        observations, infos = super()._converted(observations, infos)
        if self.is_legal is None:
            return observations, infos
        movers = [agent for agent in movers_of(self.env.agents, infos) if agent in self.viewers]
        return observations, {**infos, **{agent: {**infos.get(agent, {}), MASK: self.mask(agent)} for agent in movers}}


def reference_phrases(env: ParallelEnv[str, Any, Any], num_episodes: int = 16) -> dict[str, tuple[str, ...]]:
    """Play episodes with reference replies, and return each agent's distinct replies in order of first use.

    Args:
        env: a text environment with `reference_reply`. Only a copy of `env` is played.
        num_episodes: number of episodes. The seeds are 0, 1, 2, ...
    """
    played = deepcopy(env)
    phrases: dict[str, dict[str, None]] = {agent: {} for agent in env.possible_agents}
    for seed in range(num_episodes):
        _, infos = played.reset(seed=seed)
        while played.agents:
            replies = {agent: played.unwrapped.reference_reply(agent) for agent in movers_of(played.agents, infos)}
            for agent, reply in replies.items():
                phrases[agent].setdefault(reply)
            infos = played.step(replies)[4]
    return {agent: tuple(found) for agent, found in phrases.items()}
