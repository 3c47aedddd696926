"""Bootstrap confidence intervals. Axes: R scores (episodes or runs), K strata (tasks), N resamples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Interval:
    """Estimate with its confidence interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"


def bootstrap_interval(values: Sequence[float]) -> Interval:
    """Return the mean of values (at least one) with its 95 % percentile bootstrap interval, from a fixed seed."""
    if not len(values):
        raise ValueError("bootstrap_interval needs at least one value, but values is empty")
    sample = np.asarray(values, dtype=np.float64)
    indices = bootstrap_indices(len(sample), 1, 5_000)
    means = resampled(sample[:, None], indices)[..., 0].mean(axis=1)
    return percentile_interval(float(sample.mean()), means, 0.95)


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
