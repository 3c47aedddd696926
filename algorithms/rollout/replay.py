"""Replay: an episode comes about again from its seed and its actions, as what is under way cannot be saved itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from ..._errors import UserError
from ...envs.vectors.faults import StepResult
from ...envs.vectors.vector import VectorEnv, as_step
from .plays import Plan


class ReplayError(UserError):
    """An episode took another course when it was played again."""


def replayed(vector: VectorEnv, place: int, plan: Plan, actions: Iterable[Mapping[str, Any]]) -> Iterator[StepResult]:
    """Play an episode again: what its reset returned, then the result of each joint turn.

    Args:
        vector: copies of the environment.
        place: number of the copy that plays it.
        plan: seed and task of the episode.
        actions: joint actions, in order.
    """
    yield as_step(vector.reset(place, plan.seed, plan.options()))
    for joint in actions:
        yield vector.step({place: joint})[place]


def is_same(one: Any, other: Any) -> bool:
    """Whether two observations are equal to the last bit; nan equals nan."""
    if isinstance(one, Mapping):
        return isinstance(other, Mapping) and one.keys() == other.keys() and all(is_same(one[k], other[k]) for k in one)
    if isinstance(one, str) or isinstance(other, str):
        return bool(one == other)
    if isinstance(one, (tuple, list)):
        return isinstance(other, (tuple, list)) and len(one) == len(other) and all(map(is_same, one, other))
    first, second = np.asarray(one), np.asarray(other)
    return first.dtype == second.dtype and np.array_equal(first, second, equal_nan=first.dtype.kind in "fc")
