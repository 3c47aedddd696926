"""Bootstrap confidence intervals. Axes: R scores (episodes or runs), K strata (tasks), N resamples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]
CONFIDENCE = 0.95  # coverage of all intervals


@dataclass(frozen=True, slots=True)
class Interval:
    """Estimate with its confidence interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"


def bootstrap_interval(values: Sequence[float], *, is_widened: bool = False) -> Interval:
    """Return the mean of values (at least one) with its 95 % percentile bootstrap interval, from a fixed seed.

    `is_widened`: widen the interval as `widening` defines, for means over few runs.
    """
    if not len(values):
        raise ValueError("bootstrap_interval needs at least one value, but values is empty")
    sample = np.asarray(values, dtype=np.float64)
    indices = bootstrap_indices(len(sample), 1, 5_000)
    means = resampled(sample[:, None], indices)[..., 0].mean(axis=1)
    if is_widened:
        return interval_of(sample.mean(), means, (len(sample), 1))
    return percentile_interval(float(sample.mean()), means, CONFIDENCE)


def bootstrap_indices(num_scores: int, num_strata: int, num_resamples: int, *, seed: int = 0) -> Indices:
    """Sample indices [N, R, K] of N resamples of R scores, independently for each of K strata."""
    return np.random.default_rng(seed).integers(num_scores, size=(num_resamples, num_scores, num_strata))


def resampled(scores: Floats, indices: Indices) -> Floats:
    """Select from scores [R, K] by indices [N, R, K], separately for each of K strata. Returns [N, R, K]."""
    return np.take_along_axis(scores[None], indices, axis=1)


def percentile_interval(value: float, samples: Floats, confidence: float) -> Interval:
    """Return the percentile interval of an estimate from its resamples [N] (Efron and Tibshirani, 1993, chapter 13)."""
    tail = (1 - confidence) / 2
    low, high = np.quantile(samples, [tail, 1 - tail])
    return Interval(value, float(low), float(high))


def interval_of(value: Floats | float, samples: Floats, shape: Sequence[int], *, is_widened: bool = True) -> Interval:
    """Interval of an estimate from its resamples [N]. `shape`: R runs and K tasks. The interval of one run is nan."""
    center = float(value)
    if shape[0] < 2:
        return Interval(center, math.nan, math.nan)
    plain = percentile_interval(center, samples, CONFIDENCE)
    factor = widening(shape[0], shape[1], CONFIDENCE) if is_widened else 1.0
    return Interval(center, center + factor * (plain.low - center), center + factor * (plain.high - center))


def widening(num_runs: int, num_tasks: int, confidence: float) -> float:
    """Factor that moves the ends of a bootstrap interval away from the estimate, to correct its coverage.

        t / z * sqrt(R / (R - 1)),  t: Student quantile with K * (R - 1) degrees of freedom, z: normal quantile

    The spread of a resample is too small by sqrt((R - 1) / R), and a mean of few runs has Student's tails. Source:
    Hesterberg (arXiv:1411.5279), section 4.2. Hesterberg moves the percentiles instead. That is impossible with five
    runs: with probability 1/16, the true value is outside of the range of all five. Raises ValueError for one run.
    """
    if num_runs < 2:
        raise ValueError(f"an interval needs at least two runs, got {num_runs}")
    probability = (1 + confidence) / 2
    quantile = student_quantile(probability, num_tasks * (num_runs - 1))
    return quantile / NormalDist().inv_cdf(probability) * math.sqrt(num_runs / (num_runs - 1))


def student_quantile(probability: float, degrees: int) -> float:
    """Quantile of Student's distribution. Importing `scipy.stats` for it would take a second."""
    from scipy.special import stdtrit  # late import: training needs no scipy

    return float(stdtrit(degrees, probability))
