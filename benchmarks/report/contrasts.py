"""Contrasts that a suite states beforehand → their estimates, intervals and p values, corrected within each family."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import stdtr

from ...algorithms.rollout.intervals import Floats, Interval
from ..comparison.suite import Contrast, ContrastScore
from ..comparison.summaries import RunSummary
from .comparison import Comparison
from .curves import NEVER, cost_to_reach
from .statistics import student_quantile
from .tables import NONE, Estimate, TableOfText

SUCCESS = "metric/success"
WINDOW_EPISODES = 48
"""Episodes whose mean success must reach the level: a whole number of updates, as many as fit, at least one."""
LEVEL = 0.8


@dataclass(frozen=True)
class Finding:
    """A contrast with what the finished runs say of it."""

    contrast: Contrast
    estimate: Interval
    """Mean over seeds of the weighted sum, with its 95 % Student interval; of "episodes" in binary logarithms."""
    p: float
    """Two-sided p value of Student's test that the mean is 0; nan of fewer than two seeds."""
    corrected_p: float
    """The same after Holm's correction within the family."""
    num_seeds: int
    """Seeds finished in all cells of the contrast."""
    num_never: int
    """Runs that did not reach the level, which "episodes" counts as if they had with their last update."""


def run_score(run: RunSummary, score: ContrastScore) -> float:
    """A run's score as `Contrast.score` says; inf where it did not reach the level, nan where it has no such number."""
    if score == "return":
        return run.score()
    turns = run.curve("turns")
    if not len(turns):
        return math.nan
    if score == "success":
        name = f"evaluation/sampled/{SUCCESS}"
        # Metrics are means over the turns of an episode, of which only the last can be a success.
        return float(run.evaluations[-1].get(name, math.nan) * turns[-1]) if run.evaluations else math.nan
    successes = run.curve(SUCCESS) * turns
    if score == "training success":
        return float(successes.mean())
    episodes = run.curve("environment_steps") / turns
    width = max(1, round(WINDOW_EPISODES / episodes[0]))
    found = cost_to_reach(episodes, successes, LEVEL - 1e-9, width=width)
    return math.inf if found == NEVER else math.log2(found)


def findings(contrasts: Sequence[Contrast], comparison: Comparison) -> list[Finding]:
    """All contrasts that have a seed; p values are corrected among the primary ones, and among the others."""
    found = [each for each in (_finding(contrast, comparison) for contrast in contrasts) if each.num_seeds]
    corrected: dict[int, float] = {}
    for is_primary in (True, False):
        family = [place for place, each in enumerate(found) if each.contrast.is_primary == is_primary]
        corrected |= dict(zip(family, holm([found[place].p for place in family]), strict=True))
    return [replace(each, corrected_p=corrected[place]) for place, each in enumerate(found)]


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down correction: the chance of any false rejection among all stays below the level.

    Source: Holm (1979), A simple sequentially rejective multiple test procedure.
    """
    corrected = [math.nan] * len(p_values)
    known = [place for place, p in enumerate(p_values) if not math.isnan(p)]
    largest = 0.0
    for rank, place in enumerate(sorted(known, key=lambda each: p_values[each])):
        largest = max(largest, min(1.0, (len(known) - rank) * p_values[place]))
        corrected[place] = largest
    return corrected


def student_test(values: Floats) -> tuple[Interval, float]:
    """Mean of values, [R], with its 95 % Student interval, and the two-sided p value of a mean of 0."""
    center = float(values.mean())
    if len(values) < 2:
        return Interval(center, math.nan, math.nan), math.nan
    error = float(values.std(ddof=1)) / math.sqrt(len(values))
    degrees = len(values) - 1
    half = student_quantile(0.975, degrees) * error
    if error == 0:
        return Interval(center, center, center), 1.0 if center == 0 else 0.0
    return Interval(center, center - half, center + half), float(2 * stdtr(degrees, -abs(center) / error))


def contrast_table(results: Sequence[Finding]) -> TableOfText:
    """The results as a table, primary ones first."""
    rows = []
    for each in sorted(results, key=lambda one: not one.contrast.is_primary):
        rows.append(
            [
                each.contrast.name,
                "primary" if each.contrast.is_primary else "",
                each.contrast.score,
                _shown(each),
                *(NONE if math.isnan(p) else f"{p:.2g}" for p in (each.p, each.corrected_p)),
                f"{each.num_seeds}" + (f", {each.num_never} never" if each.num_never else ""),
            ]
        )
    return TableOfText(
        "Contrasts stated beforehand",
        "Weighted sums of scores of the same seed, mean over seeds [95 % Student interval]. Episodes: ratio of the "
        f"episodes until {LEVEL:.0%} of {WINDOW_EPISODES} in a row succeed (geometric mean); a run that never got "
        "there counts as if it had with its last update. p: two-sided, and after Holm's correction among the primary "
        "contrasts, or among the others.",
        ["", "", "score", "estimate", "p", "p, corrected", "seeds"],
        rows,
    )


def _finding(contrast: Contrast, comparison: Comparison) -> Finding:
    cells: list[dict[int, float]] = []
    num_never = 0
    for weight, algorithm, environment in contrast.terms:
        scores: dict[int, float] = {}
        for run in comparison.runs(algorithm, environment):
            score = run_score(run, contrast.score)
            if score == math.inf:
                num_never += 1
                score = math.log2(run.curve("environment_steps")[-1] / run.curve("turns")[-1])
            if not math.isnan(score):
                scores[run.seed] = weight * score
        cells.append(scores)
    seeds = sorted(set.intersection(*map(set, cells)))
    if not seeds:
        return Finding(contrast, Interval(math.nan, math.nan, math.nan), math.nan, math.nan, 0, num_never)
    estimate, p = student_test(np.array([sum(scores[seed] for scores in cells) for seed in seeds]))
    return Finding(contrast, estimate, p, math.nan, len(seeds), num_never)


def _shown(result: Finding) -> str:
    found = result.estimate
    if result.contrast.score == "episodes":
        found = Interval(*(2**value for value in (found.value, found.low, found.high)))
    return f"{found.value:.3f} (one seed)" if result.num_seeds < 2 else Estimate(str(found), found)
