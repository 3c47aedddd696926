"""Our environments under the same ids in the registries of PettingZoo and Gymnasium.

Entry points are strings that are imported on use, so that mirroring costs an entry in a dict.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import gymnasium
import pettingzoo
from pettingzoo import ParallelEnv

from .core import TextParallelEnv
from .turn_limit import TurnLimit


def mirror(id: str) -> None:
    """Add the environment to PettingZoo's registry, and as seen by one agent to Gymnasium's; twice does nothing.

    The mirrors hold the id alone, so an environment that is replaced here is replaced there.
    """
    if id not in gymnasium.registry:
        gymnasium.register(id, entry_point="collm.envs.views.single_agent:make_single_agent", kwargs={"env_id": id})
    # PettingZoo has a registry from version 1.27 on.
    if getattr(pettingzoo, "register", None) is not None and id not in pettingzoo.parallel_registry:
        pettingzoo.register("parallel", id, entry_point="collm.envs.mirrors:make_parallel", kwargs={"env_id": id})
        pettingzoo.register("aec", id, entry_point="collm.envs.views.aec:make_aec", kwargs={"env_id": id})


def make_parallel(env_id: str, max_cycles: int | None = None, **kwargs: Any) -> ParallelEnv[str, Any, Any]:
    """What `pettingzoo.make("parallel", id)` calls for an environment of ours.

    Args:
        env_id: a registered id.
        max_cycles: PettingZoo's name for a number of turns: the game's own, where it can be set, else a limit.
        kwargs: arguments of the environment.
    """
    from .registration import spec  # registration imports this module

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
