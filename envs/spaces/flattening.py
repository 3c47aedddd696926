"""Check whether Gymnasium can flatten a space into one vector."""

from __future__ import annotations

from typing import Any

from gymnasium.spaces import Space


def is_flattenable(space: Space[Any]) -> bool:
    """Whether Gymnasium flattens a space into a `Box`. A space that does not define it, like MiniGrid's, is not."""
    try:
        return space.is_np_flattenable
    except NotImplementedError:  # the default of Space
        return False
