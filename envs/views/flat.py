"""Environments of others in plain numbers: structured observations as one vector, and infos without texts."""

from __future__ import annotations

from numbers import Number
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Space
from gymnasium.spaces.utils import flatten, flatten_space
from numpy.typing import NDArray

from ..spaces.flattening import is_flattenable
from .view import View


class FlatObservations(View):
    """Observations laid out in one row: numbers as they are, choices as one-hot vectors, a dict's by its keys.

    Observation space: a `Box` of one axis, as Gymnasium flattens. Action space: unchanged.

    Args:
        env: a parallel environment whose observations have a fixed number of numbers.
        agents: whose view it is; None: everybody's.

    Raises:
        TypeError: if a viewer's observations vary in size, or are texts.
    """

    def seen_space(self, space: Space[Any]) -> Space[Any]:
        if not is_flattenable(space):
            raise TypeError(f"FlatObservations needs observations of a fixed size, but the space is {space}")
        flat = flatten_space(space)
        assert isinstance(flat, Box)  # what a flattenable space becomes
        return flat

    def seen(self, agent: str, observation: Any) -> NDArray[Any]:
        return np.asarray(flatten(self.env.observation_space(agent), observation))


class NumericInfos(View):
    """Infos without what is neither a number nor an array of numbers. Both spaces: unchanged.

    For libraries that stack infos into arrays and fail on texts.

    Args:
        env: any parallel environment.
        agents: whose view it is; None: everybody's.
    """

    def told(self, info: dict[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in info.items() if _is_numeric(value)}


def _is_numeric(value: Any) -> bool:
    return isinstance(value, (Number, np.bool_)) or (isinstance(value, np.ndarray) and value.dtype.kind in "biuf")
