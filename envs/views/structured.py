"""Texts inside the structures other libraries expect: chat messages, or a dict with one entry."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gymnasium.spaces import Dict, Sequence, Space
from pettingzoo import ParallelEnv

from ..core import as_chat, messages_of
from ..spaces import OpenText
from .view import View, require_text

_MAX_ROLE_LENGTH = 16


class ChatObservations(View):
    """Observations as chat messages, built anew each time.

    Observation space: `Sequence(Dict(role=OpenText, content=OpenText))`; an observation is a tuple of dicts. Action
    space: unchanged.

    Args:
        env: an environment of texts; what is no transcript is one message of the user.
        agents: whose view it is; None: everybody's.
    """

    def seen_space(self, space: Space[Any]) -> Space[Any]:
        length = require_text(space, "ChatObservations")
        return Sequence(Dict({"role": OpenText(_MAX_ROLE_LENGTH), "content": OpenText(length)}))

    def seen(self, agent: str, observation: str) -> tuple[dict[str, str], ...]:
        return tuple(as_chat(messages_of(observation)))


class DictObservations(View):
    """Observations as a dict with one entry. Observation space: `Dict({key: the space})`. Action space: unchanged.

    Args:
        env: any parallel environment.
        key: the entry's name. PettingZoo's API test cannot look into texts under "observation", so that is not it.
        agents: whose view it is; None: everybody's.
    """

    def __init__(self, env: ParallelEnv[str, Any, Any], key: str = "text", agents: Iterable[str] | None = None):
        self.key = key
        super().__init__(env, agents)

    def seen_space(self, space: Space[Any]) -> Space[Any]:
        return Dict({self.key: space})

    def seen(self, agent: str, observation: Any) -> dict[str, Any]:
        return {self.key: observation}
