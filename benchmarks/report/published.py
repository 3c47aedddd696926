"""Table of a suite's results and of published results."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..comparison.summaries import RunSummary
from .comparison import Comparison
from .statistics import interval, mean
from .tables import NONE, Estimate, TableOfText


def published_table(comparison: Comparison) -> TableOfText:
    """Table of score, tokens and seconds per method and environment. It has rows only if published scores exist."""
    rows = [
        [environment, method, *_cells(found)]
        for environment in comparison.environments
        for method in comparison.algorithms
        if (found := [run for run in comparison.runs(method, environment) if run.published])
    ]
    return TableOfText(
        "Comparison with published results",
        "Score: mean held-out score of the last evaluation, sampled, in % of the maximum [95 % interval over seeds]. "
        "Tokens and seconds: means per reply. A reply in a batch takes fewer seconds than a single reply. Published: "
        "numbers of the paper. The paper's tokens and seconds count the replies of all agents.",
        ["task", "method", "score %", "published", "tokens", "published", "seconds", "published"],
        rows,
    )


def _cells(runs: list[RunSummary]) -> list[str]:
    found = [*runs[0].published["found"], None, None, None][:3]
    known = [NONE if value is None else f"{value:g}" for value in found]
    scores = np.array([100 * _last(run, run.published["score"]) / run.published["max_score"] for run in runs])
    scores = scores[np.isfinite(scores)]
    score: str = NONE
    if len(scores):
        estimate = interval(mean, scores[:, None])
        ends = "" if len(scores) == 1 else f" [{estimate.low:.1f}, {estimate.high:.1f}]"
        score = Estimate(f"{estimate.value:.1f}{ends}", estimate)
    tokens, seconds = [run.tokens_per_reply for run in runs], [run.seconds_per_reply for run in runs]
    return [score, known[0], _mean(tokens, ".0f"), known[1], _mean(seconds, ".2f"), known[2]]


def _last(run: RunSummary, metric: str) -> float:
    """Value of a metric in the last evaluation with sampled tokens. nan: it was not measured."""
    row = run.evaluations[-1] if run.evaluations else {}
    return float(row.get(f"evaluation/sampled/{metric}", np.nan))


def _mean(values: Sequence[float | None], form: str) -> str:
    measured = [value for value in values if value is not None]
    return f"{np.mean(measured):{form}}" if measured else NONE
