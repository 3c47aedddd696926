"""The same environment turn by turn, as PettingZoo's AEC interface wants it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from gymnasium.spaces import Text
from pettingzoo import AECEnv, ParallelEnv
from pettingzoo.utils.conversions import parallel_to_aec

from ..core import TextParallelEnv
from ..registration.registry import spec
from ..registration.turn_limit import TurnLimit
from .structured import DictObservations


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


def to_aec(env: ParallelEnv[str, Any, Any]) -> AECEnv[str, Any, Any]:
    """The environment as an `AECEnv`: agents act one after the other, and what they did counts when all have.

    Texts come as {"text": ...}, because PettingZoo's AEC tools ask every bare observation for its dtype.
    """
    if any(isinstance(env.observation_space(agent), Text) for agent in env.possible_agents):
        env = DictObservations(env)
    return parallel_to_aec(env)


def make_aec(env_id: str, max_cycles: int | None = None, **kwargs: Any) -> AECEnv[str, Any, Any]:
    """What `pettingzoo.make("aec", id)` calls for an environment of ours."""
    return to_aec(make_parallel(env_id, max_cycles, **kwargs))
