"""Registered environments in parallel, as `pettingzoo.make("parallel", id)` makes them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from pettingzoo import ParallelEnv

from ..core import TextParallelEnv
from ..registration.registry import spec
from ..registration.turn_limit import TurnLimit


def make_parallel(env_id: str, max_cycles: int | None = None, **kwargs: Any) -> ParallelEnv[str, Any, Any]:
    """What `pettingzoo.make("parallel", id)` calls for an environment of ours.

    Args:
        env_id: a registered id.
        max_cycles: PettingZoo's name for a number of turns: the game's own, where it can be set, else a limit.
        kwargs: arguments of the environment.
    """
    found = spec(env_id)
    if max_cycles is None:
        return found.make(**kwargs)
    if takes_max_turns(found.constructor()):
        return found.make(max_turns=max_cycles, **kwargs)
    return TurnLimit(found.make(**kwargs), max_cycles)


def takes_max_turns(constructor: Callable[..., Any]) -> bool:
    """Whether a game's own number of turns is an argument: of the function, or of a class below the common base."""
    steps: list[Any] = [constructor]
    if inspect.isclass(constructor):
        steps = [vars(each).get("__init__") for each in constructor.__mro__ if each not in (TextParallelEnv, object)]
    return any("max_turns" in inspect.signature(step).parameters for step in steps if step is not None)
