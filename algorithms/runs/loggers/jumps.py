"""Jumps: one warning if a single update changes the policies too much."""

from __future__ import annotations

from collections.abc import Callable, Mapping

MAX_NATS = 1.0
"""Nats per token of one update above which the warning is given. Updates of the Mini tasks move by 0.005 to 0.3."""


class JumpWatch:
    """A logger that warns once if an update moved the policies by more than `MAX_NATS`.

    Args:
        notice: called with the line.
    """

    def __init__(self, notice: Callable[[str], None]):
        self._notice = notice
        self._has_told = False

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        moved = metrics.get("kl_after_update", 0.0)
        if self._has_told or moved <= MAX_NATS:  # nan is not
            return
        self._has_told = True
        self._notice(
            f"update {step}: the policies moved by {moved:.3g} nats per token (kl_after_update) in one update, which "
            "destroys most models; lower the learning rate (agent_learning_rate), or limit the change with clip_range "
            "and target_kl"
        )

    def close(self) -> None:
        """Nothing is held."""
