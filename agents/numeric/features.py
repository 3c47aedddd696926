"""Conversion of observations and actions to vectors, for numeric policies and critics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from gymnasium import Space, spaces
from numpy.typing import NDArray

from ...envs.spaces import MASK, OBSERVATION, flat_mask, has_mask, is_flattenable

VECTORS = spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary


@dataclass(frozen=True)
class Features:
    """Conversion of a space's elements to vectors: numbers, or concatenated one-hot vectors."""

    num_numbers: int = 0  # length of a vector of numbers; 0: the space is discrete
    num_choices: tuple[int, ...] = ()  # number of options of each discrete component; empty: the space is continuous
    starts: tuple[int, ...] = ()  # smallest option of each discrete component
    image: tuple[int, ...] = ()  # shape of a Box with three axes; empty: any other space
    scale: float = 1.0  # divisor of image pixels: 255 for uint8, else 1
    is_masked: bool = False  # True if elements of the space are dicts with an observation and an action mask

    @classmethod
    def of(cls, space: Space[Any]) -> Features:
        """Return the features of a Box, Discrete, MultiDiscrete or MultiBinary space, also with an action mask."""
        if has_mask(space):
            assert isinstance(space, spaces.Dict)
            return replace(cls.of(space[OBSERVATION]), is_masked=True)
        if isinstance(space, spaces.Discrete):
            return cls(num_choices=(int(space.n),), starts=(int(space.start),))
        if isinstance(space, spaces.MultiDiscrete):
            choices = tuple(int(n) for n in space.nvec.ravel())
            return cls(num_choices=choices, starts=tuple(int(n) for n in space.start.ravel()))
        if isinstance(space, spaces.Box) and len(space.shape) == 3:
            scale = 255.0 if space.dtype == np.uint8 else 1.0
            return cls(num_numbers=int(np.prod(space.shape)), image=space.shape, scale=scale)
        if isinstance(space, spaces.Box | spaces.MultiBinary):
            return cls(num_numbers=int(np.prod(space.shape)))
        raise ValueError(
            f"{space} is not a space of vectors (Box, Discrete, MultiDiscrete or MultiBinary){_remedy(space)}"
        )

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Features:
        """Restore features from the result of `dataclasses.asdict`, in which JSON turned tuples into lists."""
        given: dict[str, Any] = {name: tuple(it) if isinstance(it, list) else it for name, it in fields.items()}
        return cls(**given)

    @property
    def size(self) -> int:
        return self.num_numbers + sum(self.num_choices)

    def mask(self, element: Any) -> NDArray[np.bool_] | None:
        """Return the action mask of an element. None: the space has no mask."""
        return flat_mask(element[MASK]) if self.is_masked else None

    def compact(self, element: Any) -> NDArray[np.float32] | NDArray[np.uint8]:
        """Copy an element of the space into a flat vector: uint8 for uint8 images, else float32."""
        bare: NDArray[Any] = np.asarray(element[OBSERVATION] if self.is_masked else element)
        is_image = bool(self.image) and bare.dtype == np.uint8 and bare.size == self.num_numbers
        return np.array(bare.ravel() if is_image else self.vector(element))

    def vector(self, element: Any) -> NDArray[np.float32]:
        """Convert an element of the space to a vector. Raise `ValueError` if the element is not in the space."""
        if self.is_masked:
            element = element[OBSERVATION]
        if not self.num_choices:
            numbers = np.asarray(element, dtype=np.float32).ravel()
            if len(numbers) != self.num_numbers:
                raise ValueError(f"{element!r} has {len(numbers)} numbers, but the space has {self.num_numbers}")
            return numbers
        chosen = np.asarray(element, dtype=np.int64).ravel() - self.starts
        if len(chosen) != len(self.num_choices) or (chosen < 0).any() or (chosen >= self.num_choices).any():
            raise ValueError(
                f"{element!r} is not in the space, which has {self.num_choices} options per component, the smallest "
                f"being {self.starts}"
            )
        result = np.zeros(self.size, dtype=np.float32)
        result[np.cumsum((0, *self.num_choices[:-1])) + chosen] = 1
        return result


def _remedy(space: Space[Any]) -> str:
    """Return advice for an error message: the settings that convert a Gymnasium environment's space to vectors."""
    ways = []
    if isinstance(space, spaces.Dict):
        ways += [f"observed={name}" for name, part in space.items() if isinstance(part, VECTORS)]
    if is_flattenable(space):
        ways.append("flatten=True")
    return f"; for Gymnasium environments set --env-kwargs {' or '.join(ways)}" if ways else ""
