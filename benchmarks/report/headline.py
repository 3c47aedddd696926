"""Headline of a report: sentences and a figure with the interquartile mean of each method's final returns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...algorithms.rollout.intervals import Interval
from .comparison import Comparison, paired
from .figures import Bar, Chart
from .statistics import difference, interquartile_mean, interval, mean


@dataclass(frozen=True)
class Headline:
    sentence: str
    note: str
    charts: Sequence[Chart]


def headline(comparison: Comparison) -> Headline:
    """State the method with the highest return, and the methods that are not significantly different.

    Returns are held-out returns, or returns of the last half of training if no run was evaluated. If all returns are
    between 0 and 1 and each method has a seed with returns in all environments, there is one statement for all
    environments, otherwise one per environment.
    """
    how = "sampled" if any(run.evaluations for run in comparison.finished) else "training"
    names = comparison.environments
    groups = {name: [name] for name in names}
    has_all = all(comparison.seeds_and_scores(method, names, how)[0] for method in comparison.algorithms)
    if len(names) > 1 and comparison.has_one_scale and has_all:
        groups = {f"{len(names)} environments": names}
    rankings = [_Ranking(comparison, where, group, how) for where, group in groups.items()]
    found = [each for each in rankings if each.order]
    what = "held-out returns at the end of training" if how == "sampled" else "returns in the last half of training"
    note = (
        f"Return: interquartile mean of the {what} over all seeds and tasks, and its 95 % interval (stratified "
        "bootstrap, widened for few seeds). Dots: means of single seeds. Methods are compared on the same seeds, "
        "without a correction for the number of methods. In all figures and tables, intervals of returns end at the "
        "lowest and the highest return that the environment declares."
    )
    sentence = " ".join(each.sentence(is_named=len(names) > 1 and len(found) > 1) for each in found)
    charts = [each.chart(_mean([comparison.start(name) for name in each.environments])) for each in found]
    return Headline(sentence or "No run has finished yet.", note, charts)


class _Ranking:
    def __init__(self, comparison: Comparison, where: str, environments: Sequence[str], how: str):
        self.where, self.environments, self._how = where, environments, how
        scores = {name: comparison.seeds_and_scores(name, environments, how) for name in comparison.algorithms}
        self._scores = {name: found for name, found in scores.items() if found[0]}
        self._bounds = bounds = comparison.bounds(*environments)
        self._estimates = {
            name: interval(interquartile_mean, matrix, bounds=bounds) for name, (_, matrix) in self._scores.items()
        }
        self.order = sorted(self._estimates, key=lambda name: -self._estimates[name].value)
        self._gaps = {name: self._gap(self.order[0], name) for name in self.order[1:]}
        self.tied = [name for name, gap in self._gaps.items() if gap is None or not gap.low > 0]

    def sentence(self, *, is_named: bool) -> str:
        best, *others = self.order
        place = f"In {self.where}, " if is_named else ""
        over = f" over {self.where}" if len(self.environments) > 1 else ""
        score = f"a return of {_said(self._estimates[best])}{over}"
        if not others:
            return f"{place}{best} reaches {score}."
        if tied := self.tied:
            listed = tied[0] if len(tied) == 1 else f"{', '.join(tied[:-1])} or {tied[-1]}"
            return f"{place}{best} ends highest, with {score}; it is not significantly better than {listed}."
        gap = self._gaps[others[0]]
        return f"{place}{best} ends highest, with {score}, {_said(gap)} above {others[0]}, the next." if gap else ""

    def chart(self, level: float | None) -> Chart:
        bars = [Bar(name, self._estimates[name], self._scores[name][1].mean(axis=1).tolist()) for name in self.order]
        what = "final held-out return" if self._how == "sampled" else "return in the last half of training"
        return Chart(
            name=f"headline {self.where}",
            title=self.where,
            x=f"interquartile mean of the {what}",
            bars=bars,
            level=level,
        )

    def _gap(self, first: str, second: str) -> Interval | None:
        """Mean paired difference. None: the methods share fewer than two seeds."""
        one, other = paired(self._scores[first], self._scores[second])
        return difference(mean, one, other, bounds=self._bounds) if len(one) > 1 else None


def _said(estimate: Interval) -> str:
    if not np.isfinite(estimate.low):
        return f"{estimate.value:.3g} (one run)"
    return f"{estimate.value:.3g} [{estimate.low:.3g}, {estimate.high:.3g}]"


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if len(known) == len(values) and known else None
