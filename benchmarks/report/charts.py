"""A comparison → the numbers of its figures, which the page draws in the browser and `figures` draws as PNG."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Literal

import numpy as np

from ...algorithms.rollout.intervals import Floats, Interval
from ..comparison.summaries import RunSummary
from .comparison import Comparison, paired
from .statistics import NEVER, difference, interval, mean, median_cost, profile_bands, student_quantile, thinned

COSTS = {
    "environment_steps": "environment steps",
    "sampled_tokens": "generated tokens",
    "seconds/total": "seconds",
}
MAX_POINTS = 200
"""Points of a curve in a page; of a longer one each is the mean of several updates."""

Kind = Literal["intervals", "costs", "curves", "lines", "turns", "differences"]


@dataclass(frozen=True, kw_only=True)
class Chart:
    """One figure: its labels, and one entry of numbers per method or run.

    Entries by kind, all with the name of their `method`:
        intervals: `value`, `low`, `high`, and the `runs` they come from; None where one run has no interval.
        costs: the same; None where a run did not get there within `level`, the budget.
        curves: `seed`, `y`, and `costs`, columns by the name of the cost.
        lines: `x`, `value`, `low`, `high`, columns.
        turns: `x`, `value`, `spread`, columns.
        differences: `other`, `value`, `low`, `high`.
    """

    kind: Kind
    name: str
    title: str
    x: str
    y: str = ""
    series: Sequence[dict[str, Any]]
    level: float | None = None
    """Place of a line across the figure: the return before training, the budget, or no difference."""
    quantiles: Sequence[float] = ()
    """Student's 0.975 quantiles for 1, 2, … degrees of freedom, as many as curves of a method can need."""


@dataclass(frozen=True)
class Section:
    """Figures of one kind under one heading."""

    title: str
    note: str
    charts: Sequence[Chart]


def sections(comparison: Comparison) -> list[Section]:
    """All figures of a comparison but the one of its headline; sections without a figure are left out."""
    names = comparison.environments
    found = (
        Section(
            "Paired differences, drawn",
            "Mean final held-out return minus another method's with the same seed, and its 95 % interval. No "
            "correction is made for their number.",
            list(_differences(comparison)),
        ),
        Section(
            "Learning curves",
            "Mean training return over seeds; band: 95 % Student interval of the mean, point by point. Smoothing "
            "is a mean over a point and those before it.",
            [_curves(comparison, name) for name in names],
        ),
        Section(
            "Final scores",
            "Held-out return at the end: each seed (dots), their mean and its 95 % interval.",
            [_final(comparison, name) for name in names],
        ),
        Section(
            "Steps to a threshold",
            "Environment steps until the mean training return of five updates reached the threshold: each seed "
            "(dots), their median and its 95 % interval. In the grey strip: not within the budget.",
            [_reaching(comparison, name) for name in comparison.thresholds],
        ),
        Section(
            "Performance profiles",
            "Share of all runs above each return; band: 95 %, point by point.",
            [_profiles(comparison)] if comparison.has_one_scale else [],
        ),
        Section(
            "Explained variance of the critics",
            "1 - Var(return - value) / Var(return) in the last third of training, by turn; 1 is perfect, 0 is no "
            "better than a constant. Bars: deviation between seeds.",
            list(_by_turn(comparison, "explained_variance", "explained variance", "explained variance")),
        ),
        Section(
            "Spread of the advantages",
            "Mean square of the advantages before normalization, in the last third of training, by turn; the noise "
            "of the policy gradient grows with it. Bars: deviation between seeds.",
            list(_by_turn(comparison, "advantage_square", "advantages", "mean square of advantages")),
        ),
    )
    drawn = (Section(each.title, each.note, [chart for chart in each.charts if chart.series]) for each in found)
    return [section for section in drawn if section.charts]


def interval_entry(method: str, estimate: Interval, runs: Floats) -> dict[str, Any]:
    """Entry of an "intervals" chart."""
    return {"method": method, **_numbers(estimate), "runs": [_short(each) for each in runs]}


def _numbers(estimate: Interval) -> dict[str, float | None]:
    return {"value": _short(estimate.value), "low": _short(estimate.low), "high": _short(estimate.high)}


def _curves(comparison: Comparison, environment: str) -> Chart:
    costs = [name for name in COSTS if name != "sampled_tokens" or comparison.writes_text(environment)]
    series = []
    for method in comparison.algorithms:
        for run in comparison.runs(method, environment):
            returns = thinned(run.learning_curve(costs[0])[1], MAX_POINTS)
            if len(returns) > 1:
                columns = {cost: _column_of(run, cost) for cost in costs}
                series.append({"method": method, "seed": run.seed, "y": _list(returns), "costs": columns})
    most = max((len(comparison.runs(name, environment)) for name in comparison.algorithms), default=1)
    return Chart(
        kind="curves",
        name=f"curve {environment}",
        title=environment,
        x="environment steps",
        y="team return",
        series=series,
        quantiles=[_precise(student_quantile(0.975, degrees)) for degrees in range(1, most)],
    )


def _column_of(run: RunSummary, cost: str) -> list[float]:
    """Costs of a curve's points, with digits enough to tell neighbours apart."""
    return [_precise(value) for value in thinned(run.learning_curve(cost)[0], MAX_POINTS, keeps="last")]


def _final(comparison: Comparison, environment: str) -> Chart:
    series = []
    bounds = comparison.bounds(environment)
    for method in comparison.algorithms:
        scores = comparison.scores(method, environment)
        if len(scores):
            series.append(interval_entry(method, interval(mean, scores[:, None], bounds=bounds), scores))
    return Chart(
        kind="intervals",
        name=f"final {environment}",
        title=environment,
        x="held-out return",
        series=series,
        level=start_level(comparison, environment),
    )


def start_level(comparison: Comparison, environment: str) -> float | None:
    """Mean held-out return before training; None where nothing was evaluated."""
    start = comparison.start(environment)
    return None if start is None else _short(start)


def _reaching(comparison: Comparison, environment: str) -> Chart:
    methods = [name for name in comparison.algorithms if comparison.runs(name, environment)]
    series = []
    for method in methods:
        costs = comparison.costs_to_reach(method, environment, "environment_steps")
        found = median_cost(costs)
        series.append(interval_entry(method, Interval(found.median, found.low, found.high), np.array(costs)))
    ends = [run.curve("environment_steps")[-1] for name in methods for run in comparison.runs(name, environment)]
    return Chart(
        kind="costs",
        name=f"steps to threshold {environment}",
        title=f"{environment}: return of {comparison.thresholds[environment]:g}",
        x="environment steps (grey: not within budget)",
        series=series,
        level=float(max(ends)),
    )


def _profiles(comparison: Comparison) -> Chart:
    thresholds = np.linspace(0, 1, 101)
    series = []
    for method in comparison.algorithms:
        matrix = comparison.matrix(method)
        if matrix is not None:
            value, low, high = map(_list, profile_bands(matrix, thresholds))
            series.append({"method": method, "x": _list(thresholds), "value": value, "low": low, "high": high})
    return Chart(
        kind="lines", name="profile", title="all environments", x="return", y="share of runs above it", series=series
    )


def _by_turn(comparison: Comparison, field: str, name: str, label: str) -> Iterator[Chart]:
    """A chart per environment where some run has the diagnostic; agents that act by vectors have none."""
    for environment in comparison.environments:
        found = [_turns(comparison, method, environment, field) for method in comparison.algorithms]
        series = [entry for entry in found if entry is not None]
        if series:
            yield Chart(
                kind="turns",
                name=f"{name} {environment}",
                title=environment,
                x="turn",
                y=label,
                series=series,
                level=0,
            )


def _turns(comparison: Comparison, method: str, environment: str, field: str) -> dict[str, Any] | None:
    curves = [_column(run, field) for run in comparison.runs(method, environment)]
    length = max(map(len, curves), default=0)
    found = np.array([np.pad(curve, (0, length - len(curve)), constant_values=np.nan) for curve in curves])
    columns = {turn + 1: kept for turn, column in enumerate(found.T) if len(kept := column[~np.isnan(column)])}
    if not columns:
        return None
    spread = [_short(kept.std(ddof=1)) if len(kept) > 1 else 0.0 for kept in columns.values()]
    means = [_short(kept.mean()) for kept in columns.values()]
    return {"method": method, "x": list(columns), "value": means, "spread": spread}


def _differences(comparison: Comparison) -> Iterator[Chart]:
    """Each pair of methods once, as the other way round all signs change; first over all environments, on one scale."""
    names = comparison.environments
    groups = {name: [name] for name in names}
    if len(names) > 1 and comparison.has_one_scale:
        groups = {"all environments": list(names), **groups}
    for title, group in groups.items():
        scores = {name: comparison.seeds_and_scores(name, group) for name in comparison.algorithms}
        series = []
        bounds = comparison.bounds(*group)
        for method, other in combinations(comparison.algorithms, 2):
            first, second = paired(scores[method], scores[other])
            if len(first):
                found = difference(mean, first, second, bounds=bounds)
                series.append({"method": method, "other": other, **_numbers(found)})
        label = "difference of final held-out returns"
        yield Chart(kind="differences", name=f"difference {title}", title=title, x=label, series=series, level=0)


def _column(run: RunSummary, field: str) -> Floats:
    values: Sequence[float | None] = [getattr(turn, field) for turn in run.diagnostics]
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)


def _list(values: Floats) -> list[float | None]:
    return [_short(value) for value in values]


def _short(value: float) -> float | None:
    """Five digits, more than a figure shows; None for what no axis has a place for, nan and `NEVER`."""
    return float(f"{value:.5g}") if np.isfinite(value) and value != NEVER else None


def _precise(value: float) -> float:
    return float(f"{value:.8g}")
