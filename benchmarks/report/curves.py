"""Learning curves over their cost, on a common grid, and the cost of reaching a score. Pure functions of arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...algorithms.rollout.intervals import Floats, bootstrap_indices, resampled
from .statistics import NUM_RESAMPLES

NEVER = float("inf")


def common_grid(costs: Sequence[Floats], num_points: int = 100) -> Floats:
    """Points that all curves cover: from the last of their starts to the first of their ends.

    Raises:
        ValueError: if there is no such stretch.
    """
    start, end = max(each[0] for each in costs), min(each[-1] for each in costs)
    if end < start:
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
