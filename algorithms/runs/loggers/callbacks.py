"""Base class of callbacks, and callbacks that warn about runs that cannot learn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:  # both import torch, which would slow down the help of the command line
    from ...rollout.collector import RolloutCollector
    from ..evaluation import Evaluated

MAX_NATS = 1.0  # Largest usual KL divergence of an update, in nats per token. On the Mini tasks: 0.005 to 0.3.
PATIENCE = 20  # Updates with equal returns before the notice. If success is rare, some updates contain no success.
CONSTANT_SUM_PATIENCE = 3  # Updates with equal team returns and different own returns before the notice
Notice = Callable[[str], None]


class Logger(Protocol):
    """Minimal interface of a logger. A logger may also have the other methods of `Callback`."""

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Record the metrics of a step. `step` increases from call to call."""

    def close(self) -> None:
        """Write buffered metrics, and close the logger."""


class Callback:
    """Base class of callbacks, called on rank 0. The default methods do nothing."""

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Receive the metrics of an update, after the update."""

    def log_evaluation(self, step: int, evaluated: Evaluated) -> None:
        """Receive the results of an evaluation, after `log` of the same update."""

    def log_progress(self, name: str, collector: RolloutCollector) -> None:
        """Receive the collector before each decision of an evaluation. `name`: decoding mode, "sampled" or "greedy"."""

    def close(self) -> None:
        """Close the callback at the end of the run."""


def as_callback(logger: Logger | Callback) -> Callback:
    """Convert a logger to a callback with the methods of the logger. A callback is returned unchanged."""
    if isinstance(logger, Callback):
        return logger
    callback = Callback()
    for name in ("log", "log_evaluation", "log_progress", "close"):
        if (method := getattr(logger, name, None)) is not None:
            setattr(callback, name, method)
    return callback


class JumpWatch(Callback):
    """Callback that prints one notice if the KL divergence of an update exceeds `MAX_NATS`."""

    def __init__(self, notice: Notice):
        self._notice = notice
        self._has_told = False

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        moved = metrics.get("kl_after_update", 0.0)
        if self._has_told or moved <= MAX_NATS:  # False for nan, so nan gives a notice
            return
        self._has_told = True
        self._notice(
            f"update {step}: the policies changed by {moved:.3g} nats per token (kl_after_update) in one update, which "
            "destroys most models; lower the learning rate (agent_learning_rate), or limit the change with clip_range "
            "and target_kl"
        )


def silent_since(shares: Sequence[float], patience: int = PATIENCE) -> int | None:
    """Return the start of the latest series of updates with equal returns. None: the series is shorter than `patience`.

    `shares` contains the metric `equal_returns` of each update, or NaN.
    """
    start = len(shares)
    while start and shares[start - 1] == 1:
        start -= 1
    return start if len(shares) - start >= patience else None


class SilenceWatch(Callback):
    """Callback that prints one notice if the returns in each group of rollouts are equal for many updates.

    No policy learns then. If only team returns are equal, the notice suggests credited_reward="own".
    """

    def __init__(self, notice: Notice, credited_reward: Literal["team", "own"] | None = None):
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
        if self._credited_reward != "own" and silent_since(self._constant, CONSTANT_SUM_PATIENCE) is not None:
            self._tell(
                f"update {step}: for {CONSTANT_SUM_PATIENCE} updates the episodes of each group had equal team returns "
                "and different own returns, as in a constant-sum game; with credited_reward='team' the advantages are "
                "0, or consist only of critic errors; set credited_reward='own' (--credited-reward own)"
            )
        elif silent_since(self._equal, PATIENCE) is not None:
            self._tell(
                f"update {step}: for {PATIENCE} updates the episodes of each group had equal returns "
                f"({metrics['return']:g} on average), so there is nothing to learn from: the task is solved, or the "
                "policies have collapsed; after a collapse, start again with a lower learning rate or larger groups"
            )

    def _tell(self, line: str) -> None:
        self._has_told = True
        self._notice(line)
