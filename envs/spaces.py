"""Text space of bounded length, and functions for action masks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

import numpy as np
from gymnasium.spaces import Dict, Discrete, MultiDiscrete, Space, Text
from gymnasium.spaces.utils import flatdim, flatten, flatten_space
from gymnasium.vector.utils import create_shared_memory
from numpy.typing import NDArray

# Samples include characters that break naive code: a space, a line feed, multi-byte characters.
_SAMPLE_CHARACTERS = "abcdefghijklmnopqrstuvwxyz0123456789 .\né数"


def is_unicode_text(text: str) -> bool:
    """Return True if UTF-8 can encode the string: the string has no lone surrogates, which tokenizers reject."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


class OpenText(Text):
    """Space of all texts with `min_length` to `max_length` characters, except texts with lone surrogates.

    Gymnasium's `Text` has a list of allowed characters, by default without space and line feed. With all characters of
    Unicode, a `Text` takes a second to build and megabytes to pickle. `OpenText` has no such list. It is a subclass of
    `Text`, because other libraries test for this type.

    Args:
        max_length: maximum length of a text in characters, at least `min_length`.
        min_length: minimum length of a text in characters, at least 0.
        seed: seed of `sample`.
    """

    def __init__(self, max_length: int, *, min_length: int = 0, seed: int | np.random.Generator | None = None):
        if not 0 <= min_length <= max_length:
            raise ValueError(f"OpenText needs 0 <= min_length <= max_length, got {min_length} and {max_length}")
        super().__init__(max_length, min_length=min_length, charset=_SAMPLE_CHARACTERS, seed=seed)

    def contains(self, x: Any) -> bool:
        return isinstance(x, str) and self.min_length <= len(x) <= self.max_length and is_unicode_text(x)

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        """Sample a text of at most 24 characters. `mask` and `probability` must be None."""
        if mask is not None or probability is not None:
            raise ValueError("OpenText.sample does not support mask and probability; leave both out")
        upper = max(self.min_length, min(self.max_length, 24))
        length = int(self.np_random.integers(self.min_length, upper + 1))
        return "".join(_SAMPLE_CHARACTERS[i] for i in self.np_random.integers(len(_SAMPLE_CHARACTERS), size=length))

    def __repr__(self) -> str:
        return f"OpenText({self.min_length}, {self.max_length})"

    def __eq__(self, other: object) -> bool:
        bounds = self.min_length, self.max_length
        return isinstance(other, OpenText) and bounds == (other.min_length, other.max_length)

    def __hash__(self) -> int:
        return hash((OpenText, self.min_length, self.max_length))


def _refuse_flattening(space: Space[Any], *_: Any) -> NoReturn:
    raise TypeError(f"{space} cannot be flattened; convert texts to token ids with a view from collm.envs.views")


for _function in (flatdim, flatten, flatten_space):
    _function.register(OpenText, _refuse_flattening)


@create_shared_memory.register(OpenText)
def _create_shared_memory(space: OpenText, n: int = 1, ctx: Any = None) -> Any:
    # Gymnasium would read a text from shared memory only once and return this first text at every later step.
    raise TypeError(
        f"{space} does not support shared memory; pass vector_kwargs={{'shared_memory': False}} to gymnasium.make_vec, "
        "or shared_memory=False to AsyncVectorEnv"
    )


def is_flattenable(space: Space[Any]) -> bool:
    """Return True if Gymnasium can flatten the space into a `Box`."""
    try:
        return space.is_np_flattenable
    except NotImplementedError:  # the space does not define this property, such as MiniGrid's space of missions
        return False


MASK, OBSERVATION = "action_mask", "observation"
WAITS = "waits"
"""Key of infos: True if the agent does not act in the next turn. Its action may be left out of `step`."""


def movers_of(agents: Iterable[str], infos: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the agents that act in the next turn. `infos` are those of the last `reset` or `step`."""
    return [agent for agent in agents if not infos.get(agent, {}).get(WAITS)]


def has_mask(space: Space[Any]) -> bool:
    """Return True if an observation space contains action masks: `Dict(action_mask=..., observation=...)`."""
    return isinstance(space, Dict) and set(space) == {MASK, OBSERVATION}


def options_of(space: Space[Any]) -> tuple[int, ...]:
    """Return the number of values per dimension of a `Discrete` or `MultiDiscrete` space. Other spaces: ()."""
    if isinstance(space, Discrete):
        return (int(space.n),)
    return tuple(int(n) for n in space.nvec.ravel()) if isinstance(space, MultiDiscrete) else ()


def flat_mask(mask: Any) -> NDArray[np.bool_]:
    """Convert an action mask (an array, or a tuple with one array per dimension) to a flat array of bools.

    Raises ValueError if a value is neither 0 nor 1.
    """
    parts = mask if isinstance(mask, (tuple, list)) else [mask]
    row = np.concatenate([np.asarray(part).ravel() for part in parts])
    if row.dtype != np.bool_ and not np.isin(row, (0, 1)).all():
        raise ValueError(f"an action mask must be 1 for legal and 0 for illegal options, got {mask!r}")
    return row.astype(np.bool_)


def mask_problem(mask: Any, options: tuple[int, ...]) -> str | None:
    """Describe the fault of an action mask, as the end of an error message. None: the mask is valid.

    Args:
        mask: an array, or a tuple with one array per dimension of the action.
        options: number of values per dimension of the action (`options_of`).
    """
    try:
        row = flat_mask(mask)
    except (ValueError, TypeError) as error:
        return f"is invalid: {error}"
    if not options:
        return "needs an action space of type Discrete or MultiDiscrete"
    if len(row) != sum(options):
        return f"has {len(row)} entries, but there are {sum(options)} options in the action space"
    starts = np.cumsum((0, *options[:-1]))
    # The message contains the index of the dimension, not the mask, because masks may have 10,000 entries.
    empty = np.flatnonzero(~np.logical_or.reduceat(row, starts))
    if len(empty):
        return f"leaves no legal option{f' in dimension {empty[0]}' if len(options) > 1 else ''}"
    return None


def only_first(options: tuple[int, ...]) -> NDArray[np.int8]:
    """Return an action mask in which only the first value of each dimension of the action is legal."""
    mask = np.zeros(sum(options), dtype=np.int8)
    mask[np.cumsum([0, *options])[:-1]] = 1
    return mask


def sampled(space: Space[Any], mask: Any) -> Any:
    """Sample an action that the mask allows, uniformly. Random numbers come from the space's generator."""
    options = options_of(space)
    row = flat_mask(mask).astype(np.int8)
    if isinstance(space, Discrete):
        return space.sample(row)
    parts = np.split(row, np.cumsum(options)[:-1])
    chosen = [int(space.np_random.choice(np.flatnonzero(part))) for part in parts]
    assert isinstance(space, MultiDiscrete)
    return (np.asarray(chosen, dtype=space.dtype) + space.start.ravel()).reshape(space.shape)
