"""Level-Based Foraging with the food levels of version 2, which many published results use. Needs lbforaging."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from lbforaging.foraging import ForagingEnv
from numpy.typing import NDArray

VERSION_2 = "ForagingVersion2-8x8-2p-3f-v0"


class ForagingVersion2(ForagingEnv):
    """Level-Based Foraging of version 3, with food levels as in version 2 (lbforaging 1.0.16 to 1.1.1).

    Without forced cooperation, food has levels 1 to s - 1 in version 2 and 1 to s in version 3, where s is the sum of
    the players' levels. Food of level s needs both players. In version 2, random play therefore has twice the return.
    The players' levels are 1 and 2 in both versions.
    """

    def spawn_food(self, max_num_food: int, min_levels: NDArray[Any], max_levels: NDArray[Any]) -> None:
        highest = max_levels if self.force_coop else np.maximum(max_levels - 1, min_levels)
        super().spawn_food(max_num_food, min_levels, highest)


if VERSION_2 not in gymnasium.registry:
    version_3 = gymnasium.spec("Foraging-8x8-2p-3f-v3")  # importing lbforaging registers this id
    # At the game's own limit the episode terminates. At the limit of `gymnasium.make` it would be truncated, and the
    # return would be bootstrapped with the critic's value.
    gymnasium.register(VERSION_2, entry_point=ForagingVersion2, kwargs={**version_3.kwargs, "max_episode_steps": 25})
