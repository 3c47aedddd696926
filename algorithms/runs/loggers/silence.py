"""Silence: a run whose episodes all have the same return learns nothing any more, and says so once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

PATIENCE = 20
"""Updates of equal returns in a row that count as silence: of rare successes a batch or two often has none."""


def silent_since(shares: Sequence[float]) -> int | None:
    """Index of the first update of the silence that a run ends with; None where it ends with none.

    Args:
        shares: `equal_returns` by update; nan where an update has no such number.
    """
    start = len(shares)
    while start and shares[start - 1] == 1:
        start -= 1
    return start if len(shares) - start >= PATIENCE else None


class SilenceWatch:
    """A logger that says once that a run has fallen silent.

    Args:
        notice: called with the line.
    """

    def __init__(self, notice: Callable[[str], None]):
        self._notice = notice
        self._shares: list[float] = []
        self._has_told = False

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self._shares.append(metrics.get("equal_returns", 0.0))
        if not self._has_told and silent_since(self._shares) is not None:
            self._has_told = True
            self._notice(
                f"update {step}: for {PATIENCE} updates all episodes of a group have had the same return "
                f"({metrics['return']:g} on average), which leaves nothing to learn from: the task is solved, or lost "
                "for good; if lost, start again with a lower learning rate or larger groups"
            )

    def close(self) -> None:
        """Nothing is held."""
