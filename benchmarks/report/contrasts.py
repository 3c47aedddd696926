"""Contrasts that a suite states beforehand → their estimates, intervals and p values, corrected within each family."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import stdtr

from ...algorithms.rollout.intervals import Floats, Interval
from ...envs.registration.registry import Range
from ..comparison.suite import Contrast, ContrastScore
from ..comparison.summaries import RunSummary
from .comparison import Comparison
from .statistics import NEVER, UNBOUNDED, cost_to_reach, student_quantile, within
from .tables import NONE, Estimate, TableOfText

SUCCESS = "metric/success"
WINDOW_EPISODES = 48
"""Episodes whose mean success must reach the level: a whole number of updates, as many as fit, at least one."""
LEVEL = 0.8
OVER_STARTS = (
    " Over starts: the same with one value per start checkpoint, the mean of its seeds. This interval is about a new "
    "start checkpoint; the one over seeds is about new seeds of these starts."
)
STARTS_HEADER = "over starts", "p over starts, corrected", "starts"


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
    over_starts: Interval
    """Mean over start checkpoints of the seeds' means, with its 95 % Student interval; nan of fewer than two starts."""
    p_over_starts: float
    """Two-sided p value of Student's test over start checkpoints; nan of fewer than two starts."""
    corrected_p_over_starts: float
    """The same after Holm's correction within the family."""
    num_starts: int
    """Start checkpoints of these seeds."""
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
    for is_primary in (True, False):
        family = [place for place, each in enumerate(found) if each.contrast.is_primary == is_primary]
        corrected = holm([found[place].p for place in family])
        over_starts = holm([found[place].p_over_starts for place in family])
        for place, p, other in zip(family, corrected, over_starts, strict=True):
            found[place] = replace(found[place], corrected_p=p, corrected_p_over_starts=other)
    return found


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


def start_means(values: Mapping[int, float], models: Mapping[int, Collection[str]]) -> Floats:
    """Mean of the seeds' values per start checkpoint, [number of starts].

    Student's test of these means treats the start as a random effect: seeds of one start are not independent draws of
    a model. It is exact for a balanced one-way random-effects model, and stays valid if the starts differ in variance
    or number of seeds. A mixed model would have to estimate the variance between starts, which three of them do not
    tell: the estimate is often 0, and the interval then that of independent seeds.

    Source: Ibragimov and Müller (2010), t-statistic based correlation and heterogeneity robust inference.

    Args:
        values: the weighted sum of scores by seed.
        models: by seed, the folders or names of the models that its runs began with. All runs of one seed begin with
            one start, so that folders that occur in one seed name one start (a start can have moved between runs).
    """
    starts: list[tuple[set[str], list[float]]] = []
    for seed, value in values.items():
        joined = [start for start in starts if not start[0].isdisjoint(models[seed])]
        merged = set(models[seed]).union(*(names for names, _ in joined))
        starts = [start for start in starts if start not in joined]
        starts.append((merged, [value, *(each for _, found in joined for each in found)]))
    return np.array([np.mean(found) for _, found in starts])


def contrast_table(results: Sequence[Finding]) -> TableOfText:
    """The results as a table, primary ones first; with columns over starts if the seeds have more than one."""
    rows = []
    has_starts = any(each.num_starts > 1 for each in results)
    for each in sorted(results, key=lambda one: not one.contrast.is_primary):
        rows.append(
            [
                each.contrast.name,
                "primary" if each.contrast.is_primary else "",
                each.contrast.score,
                _shown(each, each.estimate),
                *(NONE if math.isnan(p) else f"{p:.2g}" for p in (each.p, each.corrected_p)),
                f"{each.num_seeds}" + (f", {each.num_never} never" if each.num_never else ""),
            ]
        )
        if has_starts:
            p = each.corrected_p_over_starts
            estimate = NONE if math.isnan(p) else _shown(each, each.over_starts)
            rows[-1] += [estimate, NONE if math.isnan(p) else f"{p:.2g}", f"{each.num_starts}"]
    return TableOfText(
        "Contrasts stated beforehand",
        "Weighted sums of scores of the same seed, mean over seeds [95 % Student interval]. Episodes: ratio of the "
        f"episodes until {LEVEL:.0%} of {WINDOW_EPISODES} in a row succeed (geometric mean); a run that never got "
        "there counts as if it had with its last update. p: two-sided, and after Holm's correction among the primary "
        "contrasts, or among the others. Intervals are cut where no score can be."
        + (OVER_STARTS if has_starts else ""),
        ["", "", "score", "estimate", "p", "p, corrected", "seeds", *(STARTS_HEADER if has_starts else ())],
        rows,
    )


def _finding(contrast: Contrast, comparison: Comparison) -> Finding:
    cells: list[dict[int, float]] = []
    models: dict[int, set[str]] = {}
    low, high = 0.0, 0.0
    num_never = 0
    for weight, algorithm, environment in contrast.terms:
        scores: dict[int, float] = {}
        ends = [weight * end for end in _score_bounds(contrast.score, environment, comparison)]
        low, high = low + min(ends), high + max(ends)
        for run in comparison.runs(algorithm, environment):
            score = run_score(run, contrast.score)
            if score == math.inf:
                num_never += 1
                score = math.log2(run.curve("environment_steps")[-1] / run.curve("turns")[-1])
            if not math.isnan(score):
                scores[run.seed] = weight * score
                models.setdefault(run.seed, set()).add(run.experiment["model"]["model"])
        cells.append(scores)
    seeds = sorted(set.intersection(*map(set, cells)))
    if not seeds:
        none = Interval(math.nan, math.nan, math.nan)
        return Finding(contrast, none, math.nan, math.nan, 0, none, math.nan, math.nan, 0, num_never)
    sums = {seed: sum(scores[seed] for scores in cells) for seed in seeds}
    estimate, p = student_test(np.array(list(sums.values())))
    means = start_means(sums, models)
    over_starts, p_over_starts = student_test(means)
    return Finding(
        contrast,
        within((low, high), estimate),
        p,
        math.nan,
        len(seeds),
        within((low, high), over_starts),
        p_over_starts,
        math.nan,
        len(means),
        num_never,
    )


def _score_bounds(score: ContrastScore, environment: str, comparison: Comparison) -> Range:
    """Lowest and highest possible score of a run."""
    if score == "return":
        return comparison.bounds(environment)
    return UNBOUNDED if score == "episodes" else (0.0, 1.0)


def _shown(result: Finding, found: Interval) -> str:
    if result.contrast.score == "episodes":
        found = Interval(*(2**value for value in (found.value, found.low, found.high)))
    return f"{found.value:.3f} (one seed)" if result.num_seeds < 2 else Estimate(str(found), found)
