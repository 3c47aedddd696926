"""Callbacks of a training run: the base class of loggers and displays, and two that warn of runs that cannot learn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:  # both import torch, which the help of the command line does without
    from ...rollout.collector import RolloutCollector
    from ..evaluation import Evaluated

MAX_NATS = 1.0
"""Nats per token of one update above which the warning is given. Updates of the Mini tasks move by 0.005 to 0.3."""
PATIENCE = 20
"""Updates of equal returns in a row that count as silence: if successes are rare, a batch or two often has none."""
CONSTANT_SUM_PATIENCE = 3
"""Updates in a row with equal team returns and different own returns that count as a constant-sum game."""
Notice = Callable[[str], None]


class Logger(Protocol):
    """Minimal interface of a logger; a `Callback` has more methods, all of them optional."""

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Record metrics of a step; steps increase from call to call."""

    def close(self) -> None:
        """Write buffered metrics and close."""


class Callback:
    """Base class of callbacks, which the writing rank calls; a method that is not overridden does nothing."""

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Take the metrics of an update; steps increase from call to call."""

    def log_evaluation(self, step: int, evaluated: Evaluated) -> None:
        """Take an evaluation after an update; it comes after the update's own metrics."""

    def log_progress(self, name: str, collector: RolloutCollector) -> None:
        """Take the progress of an evaluation, before each decision.

        Args:
            name: way of playing, "sampled" or "greedy".
            collector: collector that plays, which counts its episodes.
        """

    def close(self) -> None:
        """Write buffered metrics and close, at the end of the run."""


class _LoggerCallback(Callback):
    """A callback that calls the methods that a logger of another class has."""

    def __init__(self, logger: Logger):
        for name in ("log", "log_evaluation", "log_progress", "close"):
            if (method := getattr(logger, name, None)) is not None:
                setattr(self, name, method)


def as_callback(logger: Logger | Callback) -> Callback:
    """The logger itself if it is a callback, else a callback that calls its methods."""
    return logger if isinstance(logger, Callback) else _LoggerCallback(logger)


class JumpWatch(Callback):
    """Warns once if an update moved the policies by more than `MAX_NATS`.

    Args:
        notice: called with the line.
    """

    def __init__(self, notice: Notice):
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


class SilenceWatch(Callback):
    """Warns once if all returns of a group are equal, because every advantage is then 0.

    In a constant-sum game only the team's returns are equal; the warning then names the setting that helps.

    Args:
        notice: called with the line.
        credited_reward: reward that the agents learn from.
    """

    def __init__(self, notice: Notice, credited_reward: Literal["team", "own"] = "team"):
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
