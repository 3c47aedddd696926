"""Summaries of runs: settings, curves and evaluations. They are small, so a report stores them."""

from __future__ import annotations

import json
import math
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ..._errors import UserError
from ..._json import read_json
from ...algorithms.rollout.intervals import Floats
from ...algorithms.runs.evaluation import agents_in
from ...algorithms.runs.files import CONFIG_FILE, read_config
from ...algorithms.runs.loggers import read_lines
from ...algorithms.runs.loggers.callbacks import silent_since
from ...envs.wrappers.recording import turns_by_time
from .worker import FAILURE_FILE, FINISHED_FILE, LABEL_FILE


@dataclass(frozen=True)
class TurnDiagnostics:
    """Statistics of one turn index over all agents and episodes in the last third of training."""

    turn: int  # index of the joint turn in the episode, or in the segment if an update gets a part of an episode
    return_variance: float  # of the return-to-go; it is the gradient noise of a method without a baseline
    advantage_square: float  # mean square of the advantages before normalization, in the same units
    explained_variance: float | None
    """1 - Var(return - value) / Var(return). None without a critic, or if all returns are equal."""


def diagnostics(episodes: Sequence[Mapping[str, Any]], *, has_critic: bool) -> list[TurnDiagnostics]:
    """Compute diagnostics of each turn from the records in a run's `episodes.jsonl`.

    Turns without `raw_advantage` are skipped: turns of agents that act by vectors or do not learn, and of old versions.
    """
    updates = sorted({row["update"] for row in episodes})
    last_third = set(updates[len(updates) * 2 // 3 :])
    credited: dict[int, list[tuple[float, float, float]]] = defaultdict(list)
    for row in episodes:
        if row["update"] not in last_third:
            continue
        for record in row["agents"].values():
            for time, turn in turns_by_time(record).items():
                if "raw_advantage" in turn:
                    credited[time].append((turn["return_to_go"], turn["value"], turn["raw_advantage"]))
    found = []
    for time, rows in sorted(credited.items()):
        returns, values, advantages = np.array(rows, dtype=np.float64).T  # null (not finite) becomes nan
        variance = float(returns.var())
        is_known = has_critic and variance > 1e-12
        explained = 1 - float((returns - values).var()) / variance if is_known else None
        found.append(TurnDiagnostics(time, variance, float(np.square(advantages).mean()), explained))
    return found


SUMMARIES_FILE = "summaries.jsonl"
EPISODES_FILE = "episodes.jsonl"
CURVES = (
    *("update", "environment_steps", "sampled_tokens", "seconds/total", "return", "return_std", "entropy"),
    *("explained_variance", "grad_norm", "completion_tokens", "cut_share", "equal_returns", "turns"),
    *(f"metric/{name}" for name in ("success", "ok", "taken", "own_repeats", "collisions", "wrong", "bad")),
)


@dataclass(frozen=True)
class RunSummary:
    """Settings, curves and evaluations of one run."""

    algorithm: str
    environment: str
    seed: int
    place: tuple[int, int]  # indices of environment and algorithm in the suite; 0, 0 for a run of `collm train`
    is_finished: bool
    threshold: float | None
    budget: Mapping[str, int]
    experiment: Mapping[str, Any]
    curves: Mapping[str, Sequence[float | None]]  # columns of metrics.jsonl, with one entry per update
    evaluations: Sequence[Mapping[str, float]]  # rows of evaluation.jsonl
    diagnostics: Sequence[TurnDiagnostics]
    """Statistics per turn. Empty if agents act by vectors, or if episodes lack `raw_advantage` and `return_to_go`."""
    published: Mapping[str, Any] = field(default_factory=dict)
    """Entries for the table of published results: "score" (evaluation metric), "max_score" and "found". Empty: none."""
    seconds_per_reply: float | None = None  # wall time of decoding per sampled reply in the last evaluation
    tokens_per_reply: float | None = None  # mean number of tokens of these replies
    suite: str = ""  # name of the benchmark's suite. Empty: a run of `collm train` or of an old version

    def curve(self, name: str) -> Floats:
        """Column `name` of metrics.jsonl as an array with one value per update. nan: the update has no value."""
        return np.array([np.nan if value is None else value for value in self.curves.get(name, ())], dtype=np.float64)

    def learning_curve(self, cost: str) -> tuple[Floats, Floats]:
        """Costs and mean training returns of the updates in which an episode ended."""
        returns = self.curve("return")
        has_ended = np.isfinite(returns)
        return self.curve(cost)[: len(returns)][has_ended], returns[has_ended]

    @property
    def has_moved(self) -> bool:
        """True if an update changed a policy: it had a gradient and a learning rate above 0."""
        config = self.experiment["config"]
        rates = [config["agent_learning_rate"], *config["agent_learning_rates"].values()]
        has_rate = any(rate is None or rate > 0 for rate in rates)  # None: the default of the model, which is above 0
        return bool((self.curve("grad_norm") > 0).any()) and has_rate

    @property
    def silent_since(self) -> int | None:
        """Update from which on all advantages are 0, because returns in each group are equal. None: no such update."""
        found = silent_since(self.curve("equal_returns").tolist())
        return None if found is None else round(float(self.curve("update")[found]))

    @property
    def has_collapsed(self) -> bool:
        """True if the final held-out return is below half of the highest mean return of a fifth of the training."""
        _, returns = self.learning_curve("update")
        width = max(1, len(returns) // 5)
        if len(returns) < 5 or np.isnan(end := self.score()):
            return False
        best = float(np.convolve(returns, np.ones(width) / width, mode="valid").max())
        is_constant_sum = best <= 1e-9 and bool(self.evaluations and agents_in(self.evaluations[-1]))
        return end < best / 2 and not is_constant_sum

    @property
    def writes_text(self) -> bool:
        """True if agents generated text instead of vector actions. A vector action is recorded as one token."""
        return any(length not in (None, 1.0) for length in self.curves.get("completion_tokens", (None,)))

    def score(self, how: str = "sampled") -> float:
        """Final mean held-out return, or for "training" the mean return of the last half. nan if unknown."""
        if not self.is_finished:
            return math.nan
        if how == "training":
            _, returns = self.learning_curve("update")
            return float(returns[len(returns) // 2 :].mean()) if len(returns) else math.nan
        if not self.evaluations:
            return math.nan
        return float(self.evaluations[-1][f"evaluation/{how}/return"])

    @property
    def explained_variance(self) -> float:
        """Explained variance of the critic over all turns. nan: no critic or no diagnostics."""
        known = [turn for turn in self.diagnostics if turn.explained_variance is not None]
        total = sum(turn.return_variance for turn in known)
        return sum(turn.return_variance * (turn.explained_variance or 0.0) for turn in known) / (total or math.nan)

    @property
    def advantage_ratio(self) -> float:
        """Mean square of the advantages divided by the variance of the returns. nan: no diagnostics or variance 0."""
        total = sum(turn.return_variance for turn in self.diagnostics)
        return sum(turn.advantage_square for turn in self.diagnostics) / (total or math.nan)

    def start_score(self, how: str = "sampled") -> float:
        """Initial mean held-out return, or for "training" the mean return of the first update. nan if unknown."""
        if how == "training":
            _, returns = self.learning_curve("update")
            return float(returns[0]) if len(returns) else math.nan
        before = self.first_evaluation
        return math.nan if before is None else float(before[f"evaluation/{how}/return"])

    @property
    def first_evaluation(self) -> Mapping[str, float] | None:
        return next((row for row in self.evaluations if row["update"] == 0), None)


def run_directories(directory: Path) -> list[Path]:
    return sorted(path.parent for path in directory.rglob(CONFIG_FILE) if (path.parent / "metrics.jsonl").is_file())


def failed_directories(directory: Path) -> list[Path]:
    return sorted(path.parent for path in directory.rglob(FAILURE_FILE))


def run_label(directory: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    """Labels of a run in tables. Without a label file: the names of its algorithm and environment."""
    names: dict[str, Any] = {"algorithm": config["algorithm"], "environment": config["env"], "place": [0, 0]}
    names["seed"] = config["config"]["seed"]
    file = directory / LABEL_FILE
    return names | (read_json(file) if file.is_file() else {})


def has_critic(config: Mapping[str, Any]) -> bool:
    """True if a run with these settings has a critic. Otherwise the recorded values are zeros."""
    return config["config"].get("critic_learning_rate") is not None


def read_episodes(directory: Path) -> list[dict[str, Any]]:
    """Recorded episodes of a run or of an earlier report. Empty without a file."""
    path = directory / EPISODES_FILE
    return read_lines(path) if path.is_file() else []


def _numbers(path: Path) -> list[dict[str, Any]]:
    """Read a JSON Lines file. Raise an error if a value is not a finite number or null."""
    rows = read_lines(path)
    for number, row in enumerate(rows, 1):
        for name, value in row.items():
            is_number = isinstance(value, int | float) and abs(value) <= sys.float_info.max
            if value is not None and not is_number:
                raise UserError(f"{path}, line {number}: {name!r} must be a finite number or null, got {value!r:.80}")
    return rows


def lost_episodes(directory: Path, episodes: Sequence[Mapping[str, Any]]) -> str | None:
    """Warning about updates of a run that have no recorded episodes. None: all updates have episodes."""
    updates = {row["update"] for row in read_lines(directory / "metrics.jsonl")}
    lost = sorted(updates - {row["update"] for row in episodes})
    if not lost:
        return None
    return (
        f"{directory / EPISODES_FILE} lacks the episodes of {len(lost)} of {len(updates)} updates, the first of which "
        f"is update {lost[0]}; the report omits them"
    )


def summarize(directory: Path, episodes: Sequence[Mapping[str, Any]]) -> RunSummary:
    """Summarize a run. A run of `collm train` is always treated as finished."""
    config = read_config(directory)
    is_benchmark = (directory / LABEL_FILE).is_file()
    label = run_label(directory, config)
    rows = _numbers(directory / "metrics.jsonl")
    evaluations = directory / "evaluation.jsonl"
    end = read_json(directory / FINISHED_FILE) if (directory / FINISHED_FILE).is_file() else {}
    return RunSummary(
        algorithm=label["algorithm"],
        environment=label["environment"],
        seed=label["seed"],
        place=tuple(label["place"]),
        is_finished=(directory / FINISHED_FILE).is_file() or not is_benchmark,
        threshold=label.get("threshold"),
        budget=label.get("budget", {}),
        experiment=config,
        curves={name: [row.get(name) for row in rows] for name in CURVES if any(name in row for row in rows)},
        evaluations=_numbers(evaluations) if evaluations.is_file() else [],
        diagnostics=diagnostics(episodes, has_critic=has_critic(config)),
        published=label.get("published", {}),
        seconds_per_reply=end.get("seconds_per_reply"),
        tokens_per_reply=end.get("tokens_per_reply"),
        suite=label.get("suite", ""),
    )


def kept_summaries(directory: Path) -> list[RunSummary]:
    """Read the summaries of an earlier report in a folder. Raise FileNotFoundError if it has no report."""
    kept = directory / SUMMARIES_FILE
    if not kept.is_file():
        raise FileNotFoundError(f"{directory} has no runs; give the --out of `collm benchmark` or of `collm train`")
    return [_from_json(row) for row in read_lines(kept)]


def in_order(summaries: Sequence[RunSummary]) -> list[RunSummary]:
    """Sort summaries in the order of the suite. Round numbers to 6 digits, as in the stored file."""
    found = sorted(summaries, key=lambda each: (*each.place, each.algorithm, each.seed))
    return [_from_json(_rounded(asdict(each))) for each in found]


def summary_lines(summaries: Sequence[RunSummary]) -> str:
    return "".join(json.dumps(_rounded(asdict(each)), ensure_ascii=False) + "\n" for each in summaries)


def _from_json(row: Mapping[str, Any]) -> RunSummary:
    diagnostics = [TurnDiagnostics(**each) for each in row["diagnostics"]]
    return RunSummary(**{**row, "place": tuple(row["place"]), "diagnostics": diagnostics})


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.6g}") if np.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _rounded(item) for key, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, (list, tuple)) else value
