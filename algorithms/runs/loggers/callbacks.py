"""Base class of callbacks, and callbacks that warn about runs that cannot learn."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, Protocol

from ...._progress import Phase

if TYPE_CHECKING:  # imports torch, which would slow down the help of the command line
    from ..evaluation import Evaluated

MAX_NATS = 1.0  # Largest usual KL divergence of an update, in nats per token. On the Mini tasks: 0.005 to 0.3.
PATIENCE = 20  # Updates with equal returns after which a report calls a run silent. Rare success needs patience.
FEW = 3  # Updates after which the notice about equal returns or cut replies is printed
NEARLY_ALL = 0.95  # Share of replies cut at the token limit above which the notice is printed
WATCHED = ("equal_returns", "constant_sum", "cut_share")
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

    def log_progress(self, work: Phase) -> None:
        """Receive the running phases after each decoding step and micro-batch, in the thread of the model."""

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


def silent_since(shares: Sequence[float], patience: int = PATIENCE) -> int | None:
    """Return the start of the latest series of updates with equal returns. None: the series is shorter than `patience`.

    `shares` contains the metric `equal_returns` of each update, or NaN.
    """
    start = len(shares)
    while start and shares[start - 1] == 1:
        start -= 1
    return start if len(shares) - start >= patience else None


class LearningWatch(Callback):
    """Callback that prints a notice, once per reason, about updates from which the policies cannot learn.

    Reasons: nearly all replies are cut, an update moves the policies by more than `MAX_NATS`, or all returns of each
    group are equal, so that every advantage is 0 or an error of the critic. `learns_returns`: learning uses the logged
    returns.
    """

    def __init__(
        self, notice: Notice, credited_reward: Literal["team", "own"] | None = None, *, learns_returns: bool = True
    ):
        self._notice = notice
        self._credited_reward = credited_reward
        self._learns_returns = learns_returns
        self._recent: deque[Mapping[str, float]] = deque(maxlen=FEW)
        self._told: set[str] = set()

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self._recent.append(metrics)
        smallest = {name: min(row.get(name, 0.0) for row in self._recent) for name in WATCHED}
        found: dict[str, str] = {}
        if not (moved := metrics.get("kl_after_update", 0.0)) <= MAX_NATS:  # True for nan
            found["jump"] = (
                f"the policies changed by {moved:.3g} nats per token (kl_after_update) in one update, which destroys "
                "most models; lower the learning rate (agent_learning_rate), or limit the change with clip_range and "
                "target_kl"
            )
        if len(self._recent) == FEW and self._learns_returns and smallest["equal_returns"] == 1:
            found["returns"] = (
                f"all returns of each group were equal in {FEW} updates ({metrics['return']:g} on average), so nothing "
                "is learned: raise --temperature or the number of episodes, or choose an easier task or a finer "
                "reward; at the best return, the task is solved; after a better return, lower the learning rate"
            )
            if smallest["constant_sum"] > 0 and self._credited_reward != "own":
                found["returns"] = (
                    f"in {FEW} updates the episodes of each group had equal team returns and different own returns, as "
                    "in a constant-sum game; with credited_reward='team' the advantages are 0, or consist only of "
                    "critic errors; set credited_reward='own' (--credited-reward own)"
                )
        if len(self._recent) == FEW and smallest["cut_share"] >= NEARLY_ALL and metrics["completion_tokens"] > 1:
            limit = round(metrics["completion_tokens"])
            found["cut"] = f"nearly all replies reach the limit of {limit} tokens: raise --max-new-tokens"
        if new := [text for reason, text in found.items() if reason not in self._told]:
            self._told |= found.keys()
            self._notice(f"update {step}: {'; also, '.join(new)}")
