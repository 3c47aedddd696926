"""Contrasts (planned comparisons) of a suite: estimates, intervals, and p values corrected within each family."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import stdtr

from ...algorithms.rollout.intervals import Floats, Interval, student_quantile
from ...envs.registration.registry import Range
from ..comparison.suite import Contrast, ContrastScore
from ..comparison.summaries import RunSummary
from .comparison import Comparison
from .statistics import NEVER, UNBOUNDED, cost_to_reach, within
from .tables import NONE, Estimate, TableOfText

SUCCESS = "metric/success"
WINDOW_EPISODES, LEVEL = 48, 0.8  # goal: a mean success of 0.8 in 48 consecutive episodes
OVER_STARTS = (
    " Over starts: the same test with one value per start checkpoint, which is the mean of its seeds. Its interval is "
    "for other start checkpoints. The interval over seeds is for other seeds of the same starts."
)
STARTS_HEADER = "over starts", "p over starts, corrected", "starts"


@dataclass(frozen=True)
class MeanTest:
    """Student's test that a mean is 0. With fewer than two values, the interval and the p value are nan."""

    estimate: Interval  # mean with its 95 % interval; binary logarithms for the score "episodes"
    p: float  # two-sided p value
    num_values: int
    corrected_p: float = math.nan  # after Holm's correction within the family of contrasts (primary or other)


@dataclass(frozen=True)
class Finding:
    contrast: Contrast
    over_seeds: MeanTest  # test of the weighted sums of all seeds that finished every run of the contrast
    over_starts: MeanTest  # test with one value per start checkpoint, the mean over its seeds
    num_never: int  # runs that did not reach `LEVEL`; their last update is taken instead


def run_score(run: RunSummary, score: ContrastScore) -> float:
    """Score of a run for a contrast. inf: success did not reach `LEVEL`. nan: the run has no such score."""
    if score == "return":
        return run.score()
    turns = run.curve("turns")
    if not len(turns):
        return math.nan
    if score == "success":
        name = f"evaluation/sampled/{SUCCESS}"
        # Metrics are means over the turns of an episode, and only the last turn can be a success.
        return float(run.evaluations[-1].get(name, math.nan) * turns[-1]) if run.evaluations else math.nan
    successes = run.curve(SUCCESS) * turns
    if score == "training success":
        return float(successes.mean())
    episodes = run.curve("environment_steps") / turns
    width = max(1, round(WINDOW_EPISODES / episodes[0]))  # in updates
    found = cost_to_reach(episodes, successes, LEVEL - 1e-9, width=width)
    return math.inf if found == NEVER else math.log2(found)


def findings(contrasts: Sequence[Contrast], comparison: Comparison) -> list[Finding]:
    """Test all contrasts that have a finished seed. Correct p values separately for primary and other contrasts."""
    found = [each for each in (_finding(contrast, comparison) for contrast in contrasts) if each is not None]
    for is_primary in (True, False):
        family = [place for place, each in enumerate(found) if each.contrast.is_primary == is_primary]
        corrected = holm([found[place].over_seeds.p for place in family])
        corrected_starts = holm([found[place].over_starts.p for place in family])
        for place, p, other in zip(family, corrected, corrected_starts, strict=True):
            over_seeds = replace(found[place].over_seeds, corrected_p=p)
            over_starts = replace(found[place].over_starts, corrected_p=other)
            found[place] = replace(found[place], over_seeds=over_seeds, over_starts=over_starts)
    return found


def holm(p_values: Sequence[float]) -> list[float]:
    """Correct p values by Holm's step-down method (1979), which bounds the probability of any false rejection."""
    corrected = [math.nan] * len(p_values)
    known = [place for place, p in enumerate(p_values) if not math.isnan(p)]
    largest = 0.0
    for rank, place in enumerate(sorted(known, key=lambda each: p_values[each])):
        largest = max(largest, min(1.0, (len(known) - rank) * p_values[place]))
        corrected[place] = largest
    return corrected


def student_test(values: Floats) -> MeanTest:
    """Test with Student's t that the mean of values, [R], is 0."""
    center = float(values.mean())
    if len(values) < 2:
        return MeanTest(Interval(center, math.nan, math.nan), math.nan, len(values))
    error = float(values.std(ddof=1)) / math.sqrt(len(values))
    degrees = len(values) - 1
    half = student_quantile(0.975, degrees) * error
    if error == 0:
        return MeanTest(Interval(center, center, center), 1.0 if center == 0 else 0.0, len(values))
    p = float(2 * stdtr(degrees, -abs(center) / error))
    return MeanTest(Interval(center, center - half, center + half), p, len(values))


def start_means(values: Mapping[int, float], models: Mapping[int, Collection[str]]) -> Floats:
    """Mean of the seeds' values per start checkpoint, [number of starts].

    Student's test of these means treats the start as a random effect, because seeds of one start are not independent.
    It is exact for a balanced one-way random-effects model, and remains valid if the starts differ in variance or in
    their number of seeds. A mixed model would estimate the variance between starts, which is often 0 for three starts.
    Its interval would then treat the seeds as independent.

    Source: Ibragimov and Müller (2010), t-statistic based correlation and heterogeneity robust inference.

    Args:
        values: weighted sums of scores. Keys: seeds.
        models: folders or names of the runs' start models. Keys: seeds. All runs of a seed have the same start.
            Several folders of a seed are therefore one start that was moved between runs.
    """
    starts: list[tuple[set[str], list[float]]] = []
    for seed, value in values.items():
        joined = [start for start in starts if not start[0].isdisjoint(models[seed])]
        merged = set(models[seed]).union(*(names for names, _ in joined))
        starts = [start for start in starts if start not in joined]
        starts.append((merged, [value, *(each for _, found in joined for each in found)]))
    return np.array([np.mean(found) for _, found in starts])


def contrast_table(results: Sequence[Finding]) -> TableOfText:
    rows = []
    has_starts = any(each.over_starts.num_values > 1 for each in results)
    for each in sorted(results, key=lambda one: not one.contrast.is_primary):
        rows.append(
            [
                each.contrast.name,
                "primary" if each.contrast.is_primary else "",
                each.contrast.score,
                _shown(each, each.over_seeds),
                *(NONE if math.isnan(p) else f"{p:.2g}" for p in (each.over_seeds.p, each.over_seeds.corrected_p)),
                f"{each.over_seeds.num_values}" + (f", {each.num_never} never" if each.num_never else ""),
            ]
        )
        if has_starts:
            p = each.over_starts.corrected_p
            estimate = NONE if math.isnan(p) else _shown(each, each.over_starts)
            rows[-1] += [estimate, NONE if math.isnan(p) else f"{p:.2g}", f"{each.over_starts.num_values}"]
    return TableOfText(
        "Contrasts stated beforehand",
        "Weighted sum of scores of the same seed, mean over seeds [95 % Student interval, cut at the range of possible "
        f'scores]. Score "episodes": ratio of the numbers of training episodes until {LEVEL:.0%} of {WINDOW_EPISODES} '
        "consecutive episodes succeed (geometric mean). A run that did not reach this counts with all its episodes. p: "
        "two-sided. p, corrected: Holm's correction within the primary contrasts, or within the other contrasts."
        + (OVER_STARTS if has_starts else ""),
        ["", "", "score", "estimate", "p", "p, corrected", "seeds", *(STARTS_HEADER if has_starts else ())],
        rows,
    )


def _finding(contrast: Contrast, comparison: Comparison) -> Finding | None:
    cells: list[dict[int, float]] = []
    models: dict[int, set[str]] = {}
    low, high = 0.0, 0.0
    num_never = 0
    for weight, algorithm, environment in contrast.terms:
        scores: dict[int, float] = {}
        bounds: Range = UNBOUNDED if contrast.score == "episodes" else (0.0, 1.0)
        if contrast.score == "return":
            bounds = comparison.bounds(environment)
        ends = [weight * end for end in bounds]
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
        return None
    sums = {seed: sum(scores[seed] for scores in cells) for seed in seeds}
    tests = student_test(np.array(list(sums.values()))), student_test(start_means(sums, models))
    over_seeds, over_starts = (replace(test, estimate=within((low, high), test.estimate)) for test in tests)
    return Finding(contrast, over_seeds, over_starts, num_never)


def _shown(result: Finding, test: MeanTest) -> str:
    found = test.estimate
    if result.contrast.score == "episodes":
        found = Interval(*(2**value for value in (found.value, found.low, found.high)))
    return f"{found.value:.3f} (one seed)" if result.over_seeds.num_values < 2 else Estimate(str(found), found)
