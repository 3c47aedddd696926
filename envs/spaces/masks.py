"""Action masks: which of an agent's choices are legal, as observations or infos of an environment say it.

Both conventions of PettingZoo and Gymnasium are known: an observation `{"observation": …, "action_mask": …}`, and an
info with an "action_mask". A mask holds a 1 per option that is legal, for several choices one after the other.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.spaces import Dict, Discrete, MultiDiscrete, Space
from numpy.typing import NDArray

MASK, OBSERVATION = "action_mask", "observation"


def has_mask(space: Space[Any]) -> bool:
    """Whether observations of a space carry an action mask."""
    return isinstance(space, Dict) and set(space) == {MASK, OBSERVATION}


def options_of(space: Space[Any]) -> tuple[int, ...]:
    """Number of options of each choice of an action; empty for actions that are no choices."""
    if isinstance(space, Discrete):
        return (int(space.n),)
    return tuple(int(n) for n in space.nvec.ravel()) if isinstance(space, MultiDiscrete) else ()


def flat_mask(mask: Any) -> NDArray[np.bool_]:
    """A mask as one row, from an array or, as Gymnasium has it for several choices, a tuple of arrays.

    Raises:
        ValueError: if it holds anything but 0 and 1.
    """
    parts = mask if isinstance(mask, (tuple, list)) else [mask]
    row = np.concatenate([np.asarray(part).ravel() for part in parts])
    if row.dtype != np.bool_ and not np.isin(row, (0, 1)).all():
        raise ValueError(f"an action mask holds 1 for legal and 0 for illegal options, got {mask!r}")
    return row.astype(np.bool_)


def mask_problem(mask: Any, options: tuple[int, ...]) -> str | None:
    """What is wrong with the mask of an agent that is to act; None if nothing is.

    Args:
        mask: a row of 0 and 1, or one per choice.
        options: number of options of each choice.
    """
    try:
        row = flat_mask(mask)
    except (ValueError, TypeError) as error:
        return f"is none: {error}"
    if not options:
        return "is given for actions that are no choices; masks are for Discrete and MultiDiscrete"
    if len(row) != sum(options):
        return f"has {len(row)} entries, but there are {sum(options)} options"
    starts = np.cumsum((0, *options[:-1]))
    # A number, not the row: a choice of 10,000 options is not to be printed.
    empty = np.flatnonzero(~np.logical_or.reduceat(row, starts))
    if len(empty):
        return f"leaves no legal option{f' of choice {empty[0]}' if len(options) > 1 else ''}"
    return None


def only_first(options: tuple[int, ...]) -> NDArray[np.int8]:
    """The mask of an agent whose action does nothing: of each choice the first option alone is legal."""
    mask = np.zeros(sum(options), dtype=np.int8)
    mask[np.cumsum((0, *options[:-1]))] = 1
    return mask


def sampled(space: Space[Any], mask: Any) -> Any:
    """A legal element of an action space, each as likely, from the space's own random numbers."""
    options = options_of(space)
    row = flat_mask(mask).astype(np.int8)
    if isinstance(space, Discrete):
        return space.sample(row)
    parts = np.split(row, np.cumsum(options)[:-1])
    chosen = [int(space.np_random.choice(np.flatnonzero(part))) for part in parts]
    assert isinstance(space, MultiDiscrete)
    return (np.asarray(chosen, dtype=space.dtype) + space.start.ravel()).reshape(space.shape)
