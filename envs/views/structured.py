"""Views that convert observations and infos to the formats of other libraries: chat messages, dicts, arrays, masks."""

from __future__ import annotations

from collections.abc import Iterable
from numbers import Number
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Dict, Sequence, Space
from gymnasium.spaces.utils import flatten, flatten_space
from numpy.typing import NDArray
from pettingzoo import ParallelEnv

from ..core import Infos, ResetResult, as_chat, messages_of
from ..spaces import MASK, OBSERVATION, OpenText, flat_mask, is_flattenable, options_of
from .view import View, require_text


class ChatObservations(View):
    """Converts observations to tuples of chat messages. A text that is not a transcript becomes one user message.

    Observation space: `Sequence(Dict(role=OpenText, content=OpenText))`. Action space: unchanged. Arguments: see
    `View`.
    """

    def seen_space(self, space: Space[Any]) -> Space[Any]:
        length = require_text(space, "ChatObservations")
        return Sequence(Dict({"role": OpenText(16), "content": OpenText(length)}))

    def seen(self, agent: str, observation: str) -> tuple[dict[str, str], ...]:
        return tuple(as_chat(messages_of(observation)))


class DictObservations(View):
    """Converts observations to dicts with one entry. Observation space: `Dict({key: space})`. Action space: unchanged.

    Args:
        env: any parallel environment.
        key: key of the entry. Not "observation" for texts, because PettingZoo's API test would fail.
        agents: agents whose observations are converted. None: all.
    """

    def __init__(self, env: ParallelEnv[str, Any, Any], key: str = "text", agents: Iterable[str] | None = None):
        self.key = key
        super().__init__(env, agents)

    def seen_space(self, space: Space[Any]) -> Space[Any]:
        return Dict({self.key: space})

    def seen(self, agent: str, observation: Any) -> dict[str, Any]:
        return {self.key: observation}


class FlatObservations(View):
    """Flattens observations with `gymnasium.spaces.flatten`.

    Observation space: a `Box` with one axis. Action space: unchanged. Arguments: see `View`.

    Raises:
        TypeError: if observations have no fixed size, or are texts.
    """

    def seen_space(self, space: Space[Any]) -> Space[Any]:
        if not is_flattenable(space):
            raise TypeError(f"FlatObservations needs observations of a fixed size, but the space is {space}")
        flat = flatten_space(space)
        assert isinstance(flat, Box)
        return flat

    def seen(self, agent: str, observation: Any) -> NDArray[Any]:
        return np.asarray(flatten(self.env.observation_space(agent), observation))


class NumericInfos(View):
    """Removes all entries of infos except numbers and numeric arrays, because some libraries stack infos.

    Arguments: see `View`.
    """

    def told(self, info: dict[str, Any]) -> dict[str, Any]:
        return {
            key: value
            for key, value in info.items()
            if isinstance(value, (Number, np.bool_)) or (isinstance(value, np.ndarray) and value.dtype.kind in "biuf")
        }


class MaskedObservations(View):
    """Moves the action mask from the info to the observation: `{"observation": …, "action_mask": …}`.

    If the info has no mask, the mask allows all actions. PettingZoo's classic games, RLlib, Tianshou, TorchRL and
    MaskablePPO use this format. Action spaces must be `Discrete` or `MultiDiscrete`. Arguments: see `View`.
    """

    def __init__(self, env: ParallelEnv[str, Any, Any], agents: Iterable[str] | None = None):
        super().__init__(env, agents)
        self._sizes = {agent: sum(options_of(env.action_space(agent))) for agent in self.viewers}
        for agent, size in self._sizes.items():
            if not size:
                raise TypeError(f"MaskedObservations needs Discrete or MultiDiscrete, got {env.action_space(agent)}")
            mask = Box(0, 1, (size,), np.int8)
            self.observation_spaces[agent] = Dict({OBSERVATION: env.observation_space(agent), MASK: mask})

    def _converted(self, observations: dict[str, Any], infos: Infos) -> ResetResult:
        seen = dict(observations)
        for agent, size in self._sizes.items():
            if agent in seen:
                told = infos.get(agent, {}).get(MASK)
                mask = np.ones(size, np.int8) if told is None else flat_mask(told).astype(np.int8)
                seen[agent] = {OBSERVATION: seen[agent], MASK: mask}
        return seen, {
            agent: {name: value for name, value in info.items() if name != MASK} for agent, info in infos.items()
        }
