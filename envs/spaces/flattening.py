"""Check whether Gymnasium can flatten a space into one vector."""

from __future__ import annotations

from typing import Any

from gymnasium.spaces import Space


def is_flattenable(space: Space[Any]) -> bool:
    """Return True if Gymnasium flattens the space into a `Box`.

    Spaces that do not define `is_np_flattenable`, such as MiniGrid's mission, are not flattenable.
    """
    try:
        return space.is_np_flattenable
    except NotImplementedError:  # the default of Space
        return False
