"""Bands: how far a measure lies in the range that is wanted of it."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf


@dataclass(frozen=True)
class Band:
    """Full credit between `full_from` and `full_to`, a straight ramp on each side, none beyond.

        0 at zero_below -> 1 from full_from to full_to -> 0 at zero_above

    Raises:
        ValueError: if the four corners are not in ascending order.
    """

    zero_below: float
    full_from: float
    full_to: float = inf
    zero_above: float = inf

    def __post_init__(self) -> None:
        if not self.zero_below <= self.full_from <= self.full_to <= self.zero_above:
            raise ValueError(f"a band's corners must ascend, got {self}")

    def __contains__(self, value: float) -> bool:
        """Whether the value is not beyond the ramps; at their outer ends it still is inside."""
        return self.zero_below <= value <= self.zero_above

    def credit(self, value: float) -> float:
        """The height of the band at the value, 0 to 1."""
        if value not in self:
            return 0.0
        if value < self.full_from:
            return (value - self.zero_below) / (self.full_from - self.zero_below)
        if value > self.full_to:
            return (self.zero_above - value) / (self.zero_above - self.full_to)
        return 1.0
