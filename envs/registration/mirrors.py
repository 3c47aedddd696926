"""Our environments under the same ids in the registries of PettingZoo and Gymnasium.

Entry points are strings that are imported on use: mirroring costs an entry in a dict and imports none of the views.
"""

from __future__ import annotations

import gymnasium
import pettingzoo


def mirror(id: str) -> None:
    """Add the environment to PettingZoo's registry, and as seen by one agent to Gymnasium's; twice does nothing.

    The mirrors hold the id alone, so an environment that is replaced here is replaced there.
    """
    if id not in gymnasium.registry:
        gymnasium.register(id, entry_point="collm.envs.views.single_agent:make_single_agent", kwargs={"env_id": id})
    # PettingZoo has a registry from version 1.27 on.
    if getattr(pettingzoo, "register", None) is not None and id not in pettingzoo.parallel_registry:
        pettingzoo.register(
            "parallel", id, entry_point="collm.envs.views.parallel:make_parallel", kwargs={"env_id": id}
        )
        pettingzoo.register("aec", id, entry_point="collm.envs.views.aec:make_aec", kwargs={"env_id": id})
