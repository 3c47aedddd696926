"""Level-Based Foraging with the levels of its version 2, which many published runs were made with; needs lbforaging."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from lbforaging.foraging import ForagingEnv
from numpy.typing import NDArray

VERSION_2 = "ForagingVersion2-8x8-2p-3f-v0"


class ForagingVersion2(ForagingEnv):
    """Version 3 with food of the levels that version 2 draws.

    In version 2 (lbforaging 1.0.16 to 1.1.1) upper bounds of levels are exclusive. Its players "up to level 3" have
    levels 1 and 2, which are version 3's defaults, and where cooperation is not forced its food has levels 1 to s - 1,
    with s the sum of the players' levels: one player can often lift alone what in version 3, with levels 1 to s, takes
    both. Random play earns twice as much.
    """

    def spawn_food(self, max_num_food: int, min_levels: NDArray[Any], max_levels: NDArray[Any]) -> None:
        highest = max_levels if self.force_coop else np.maximum(max_levels - 1, min_levels)
        super().spawn_food(max_num_food, min_levels, highest)


if VERSION_2 not in gymnasium.registry:
    version_3 = gymnasium.spec("Foraging-8x8-2p-3f-v3")  # registered by the import
    # The game's own limit ends the episode; that of `gymnasium.make` would only cut it, and the critic's value of what
    # is still to be gathered would count.
    gymnasium.register(VERSION_2, entry_point=ForagingVersion2, kwargs={**version_3.kwargs, "max_episode_steps": 25})
