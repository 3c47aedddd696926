"""Our environments under the same ids in the registries of PettingZoo and Gymnasium.

Entry points are strings that are imported on use, so that mirroring costs an entry in a dict.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import pettingzoo
from pettingzoo import ParallelEnv


def mirror(id: str) -> None:
    """Add the environment to PettingZoo's registry, and as seen by one agent to Gymnasium's; twice does nothing.

    The mirrors hold the id alone, so an environment that is replaced here is replaced there.
    """
    if id not in gymnasium.registry:
        gymnasium.register(id, entry_point="collm.envs.views.single_agent:make_single_agent", kwargs={"env_id": id})
    # PettingZoo has a registry from version 1.27 on.
    parallel_registry = getattr(pettingzoo, "parallel_registry", None)
    if parallel_registry is not None and id not in parallel_registry:
        pettingzoo.register("parallel", id, entry_point="collm.envs.mirrors:make_parallel", kwargs={"env_id": id})


def make_parallel(env_id: str, max_cycles: int | None = None, **kwargs: Any) -> ParallelEnv[str, Any, Any]:
    """What `pettingzoo.make` calls; PettingZoo's name for a number of turns is `max_cycles`."""
    from .registration import make  # registration imports this module

    return make(env_id, **kwargs) if max_cycles is None else make(env_id, max_turns=max_cycles, **kwargs)
