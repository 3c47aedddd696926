"""Observations and actions as vectors: what numeric policies and critics read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from ...envs.spaces import MASK, OBSERVATION, flat_mask, has_mask, is_flattenable


@dataclass(frozen=True)
class Features:
    """How an element of a space becomes a vector: numbers as they are, choices as one-hot vectors, side by side."""

    num_numbers: int = 0
    """Length of a vector of numbers; 0 where the space is one of choices."""
    num_choices: tuple[int, ...] = ()
    """Options of each choice; empty where the space is one of numbers."""
    starts: tuple[int, ...] = ()
    """The number of each choice's first option."""
    image: tuple[int, ...] = ()
    """Shape of a space of numbers with three axes; empty for others."""
    scale: float = 1.0
    """Largest value of an image's bytes; 1 where its numbers are no bytes."""
    is_masked: bool = False
    """Whether an element is a dict that has an action mask beside the observation."""

    @classmethod
    def of(cls, space: gymnasium.Space[Any]) -> Features:
        """The features of a space.

        Raises:
            ValueError: if it is none of Box, Discrete, MultiDiscrete, MultiBinary, nor one of these with an action
                mask, `Dict(observation=…, action_mask=…)`.
        """
        if has_mask(space):
            assert isinstance(space, gymnasium.spaces.Dict)  # what has a mask
            return replace(cls.of(space[OBSERVATION]), is_masked=True)
        if isinstance(space, gymnasium.spaces.Discrete):
            return cls(num_choices=(int(space.n),), starts=(int(space.start),))
        if isinstance(space, gymnasium.spaces.MultiDiscrete):
            choices = tuple(int(n) for n in space.nvec.ravel())
            return cls(num_choices=choices, starts=tuple(int(n) for n in space.start.ravel()))
        if isinstance(space, gymnasium.spaces.Box) and len(space.shape) == 3:
            scale = 255.0 if space.dtype == np.uint8 else 1.0
            return cls(num_numbers=int(np.prod(space.shape)), image=space.shape, scale=scale)
        if isinstance(space, gymnasium.spaces.Box | gymnasium.spaces.MultiBinary):
            return cls(num_numbers=int(np.prod(space.shape)))
        raise ValueError(
            f"{space} is not a space of vectors (Box, Discrete, MultiDiscrete or MultiBinary){_remedy(space)}"
        )

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Features:
        """The features that `dataclasses.asdict` wrote, after a way through JSON."""
        given: dict[str, Any] = {name: tuple(it) if isinstance(it, list) else it for name, it in fields.items()}
        return cls(**given)

    @property
    def size(self) -> int:
        """Length of the vector."""
        return self.num_numbers + sum(self.num_choices)

    def mask(self, element: Any) -> NDArray[np.bool_] | None:
        """The action mask in an element; None where elements have none."""
        return flat_mask(element[MASK]) if self.is_masked else None

    def compact(self, element: Any) -> NDArray[np.float32] | NDArray[np.uint8]:
        """A copy of the element as a vector, in bytes if it is an image of bytes."""
        bare: NDArray[Any] = np.asarray(element[OBSERVATION] if self.is_masked else element)
        is_image = bool(self.image) and bare.dtype == np.uint8 and bare.size == self.num_numbers
        return np.array(bare.ravel() if is_image else self.vector(element))

    def vector(self, element: Any) -> NDArray[np.float32]:
        """The element as a vector.

        Raises:
            ValueError: if it does not have the size, or the options, of the space.
        """
        if self.is_masked:
            element = element[OBSERVATION]
        if not self.num_choices:
            numbers = np.asarray(element, dtype=np.float32).ravel()
            if len(numbers) != self.num_numbers:
                raise ValueError(f"{element!r} has {len(numbers)} numbers, but the space has {self.num_numbers}")
            return numbers
        chosen = np.asarray(element, dtype=np.int64).ravel() - self.starts
        if len(chosen) != len(self.num_choices) or (chosen < 0).any() or (chosen >= self.num_choices).any():
            raise ValueError(f"{element!r} is not a choice among {self.num_choices} options from {self.starts}")
        result = np.zeros(self.size, dtype=np.float32)
        result[np.cumsum((0, *self.num_choices[:-1])) + chosen] = 1
        return result


def _remedy(space: gymnasium.Space[Any]) -> str:
    """How to make vectors of a space, as the end of a message; empty if there is no way."""
    ways = []
    if isinstance(space, gymnasium.spaces.Dict):
        usable = [name for name, part in space.items() if _is_vector(part)]
        ways += [f"observed={name}" for name in usable]
    if is_flattenable(space):
        ways.append("flatten=True")
    if not ways:
        return ""
    return f"; Gymnasium's environments take --env-kwargs {' or '.join(ways)}"


def _is_vector(space: gymnasium.Space[Any]) -> bool:
    try:
        Features.of(space)
    except ValueError:
        return False
    return True
