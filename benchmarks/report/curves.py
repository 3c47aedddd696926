"""Learning curves over their cost, on a common grid, and the cost of reaching a score. Pure functions of arrays."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ...algorithms.rollout.intervals import Floats, bootstrap_indices, resampled
from .statistics import NUM_RESAMPLES, student_quantile

NEVER = float("inf")


def have_common_stretch(costs: Sequence[Floats]) -> bool:
    """Whether all curves have begun before any of them ends."""
    return bool(max(each[0] for each in costs) <= min(each[-1] for each in costs))


def common_grid(costs: Sequence[Floats], num_points: int = 100) -> Floats:
    """Points that all curves cover: from the last of their starts to the first of their ends.

    Raises:
        ValueError: if there is no such stretch.
    """
    start, end = max(each[0] for each in costs), min(each[-1] for each in costs)
    if not have_common_stretch(costs):
        raise ValueError(f"the curves have no stretch in common: one starts at {start:g}, another ends at {end:g}")
    return np.linspace(start, end, num_points)


def aligned(cost: Floats, scores: Floats, grid: Floats) -> Floats:
    """A curve's values at other costs, between its points on straight lines."""
    if not (np.diff(cost) > 0).all():
        raise ValueError("a curve's costs must grow from point to point")
    return np.interp(grid, cost, scores)


def smoothed(scores: Floats, width: int) -> Floats:
    """Mean of each point and those before it, `width` at most."""
    sums = np.cumsum(np.concatenate([[0.0], scores]))
    ends = np.arange(1, len(scores) + 1)
    starts = np.maximum(0, ends - width)
    means: Floats = (sums[ends] - sums[starts]) / (ends - starts)
    return means


def thinned(values: Floats, max_points: int, *, keeps: Literal["mean", "last"] = "mean") -> Floats:
    """At most that many values: the mean, or the last, of as many neighbours as it takes."""
    size = math.ceil(len(values) / max_points)
    if size <= 1:
        return values
    pieces = [values[start : start + size] for start in range(0, len(values), size)]
    return np.array([piece.mean() if keeps == "mean" else piece[-1] for piece in pieces])


def mean_curve(curves: Sequence[tuple[Floats, Floats]], width: int) -> tuple[Floats, Floats, Floats | None]:
    """Mean over R runs of smoothed curves on a common grid, [M], and half of its 95 % Student interval, [M].

    Args:
        curves: cost and scores of each run, at least one.
        width: points that a smoothed one is the mean of.

    Returns:
        The grid, the mean, and the half interval, which one run does not have.
    """
    grid = common_grid([costs for costs, _ in curves])
    values = np.array([aligned(costs, smoothed(scores, width), grid) for costs, scores in curves])
    middle: Floats = values.mean(axis=0)
    if len(values) < 2:
        return grid, middle, None
    return grid, middle, student_quantile(0.975, len(values) - 1) * values.std(axis=0, ddof=1) / math.sqrt(len(values))


def cost_to_reach(cost: Floats, scores: Floats, threshold: float, *, width: int = 5) -> float:
    """Cost until the mean of the last `width` points was at least the threshold; `NEVER` if it was not.

    A mean of fewer points does not count: one lucky batch at the start would.
    """
    width = min(width, len(scores))
    reached = np.flatnonzero(smoothed(scores, width)[width - 1 :] >= threshold)
    return float(cost[reached[0] + width - 1]) if len(reached) else NEVER


@dataclass(frozen=True, slots=True)
class Reaching:
    """Median cost of reaching a threshold, its interval, and the number of runs that reached it."""

    median: float
    low: float
    high: float
    num_reached: int
    num_runs: int

    def __str__(self) -> str:
        numbers = ["never" if value == NEVER else f"{value:,.0f}" for value in (self.median, self.low, self.high)]
        return f"{numbers[0]} [{numbers[1]}, {numbers[2]}], {self.num_reached} of {self.num_runs}"


def median_cost(costs: Sequence[float], *, confidence: float = 0.95) -> Reaching:
    """Median over runs with its bootstrap interval; a run that never reached the threshold is later than all that did.

    Of an even number the later of the two in the middle is taken, as there is no mean with `NEVER`.
    """
    values = np.asarray(costs, dtype=np.float64)
    indices = bootstrap_indices(len(values), 1, NUM_RESAMPLES)
    samples = np.sort(resampled(values[:, None], indices)[..., 0], axis=1)[:, len(values) // 2]
    tail = (1 - confidence) / 2
    ordered = np.sort(samples)  # quantiles by rank: interpolation would make nan of two infinities
    low, high = (float(ordered[int(share * (len(ordered) - 1))]) for share in (tail, 1 - tail))
    median = float(np.sort(values)[len(values) // 2])
    return Reaching(median, low, high, int(np.isfinite(values).sum()), len(values))
