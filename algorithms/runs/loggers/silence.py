"""Silence: one warning if the returns of a run leave nothing to learn from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

PATIENCE = 20
"""Updates of equal returns in a row that count as silence: if successes are rare, a batch or two often has none."""
CONSTANT_SUM_PATIENCE = 3
"""Updates in a row with equal team returns and different own returns that count as a constant-sum game."""


def silent_since(shares: Sequence[float], patience: int = PATIENCE) -> int | None:
    """Index of the first update of the silence that a run ends with; None if the run does not end with one.

    Args:
        shares: `equal_returns` by update; nan if an update has no such number.
        patience: updates in a row that count as silence.
    """
    start = len(shares)
    while start and shares[start - 1] == 1:
        start -= 1
    return start if len(shares) - start >= patience else None


class SilenceWatch:
    """A logger that warns once if all returns of a group are equal, because every advantage is then 0.

    In a constant-sum game only the team's returns are equal; the warning then names the setting that helps.

    Args:
        notice: called with the line.
        credited_reward: reward that the agents learn from.
    """

    def __init__(self, notice: Callable[[str], None], credited_reward: Literal["team", "own"] = "team"):
        self._notice = notice
        self._credited_reward = credited_reward
        self._equal: list[float] = []
        self._constant: list[float] = []
        self._has_told = False

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self._equal.append(metrics.get("equal_returns", 0.0))
        self._constant.append(metrics.get("equal_returns", 0.0) == 1 and metrics.get("constant_sum", 0.0) > 0)
        if self._has_told:
            return
        if self._credited_reward == "team" and silent_since(self._constant, CONSTANT_SUM_PATIENCE) is not None:
            self._tell(
                f"update {step}: for {CONSTANT_SUM_PATIENCE} updates all episodes of a group have had the same team "
                "return while the agents' own returns differed, as in a constant-sum game: with credited_reward='team' "
                "advantages are 0, or only the errors of critics; set credited_reward='own' (--credited-reward own) "
                "with an algorithm without a joint critic, such as iac, ippo or magrpo"
            )
        elif silent_since(self._equal, PATIENCE) is not None:
            self._tell(
                f"update {step}: for {PATIENCE} updates all episodes of a group have had the same return "
                f"({metrics['return']:g} on average), which leaves nothing to learn from: the task is solved, or lost "
                "for good; if lost, start again with a lower learning rate or larger groups"
            )

    def _tell(self, line: str) -> None:
        self._has_told = True
        self._notice(line)

    def close(self) -> None:
        """Nothing is held."""
