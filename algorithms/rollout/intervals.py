"""Bootstrap confidence intervals of evaluations and reports.

Axes: R scores (episodes or runs), K strata (tasks; 1 for episodes), N resamples.
"""

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
    """Mean of independent values with its 95 % percentile bootstrap interval. The resampling indices are fixed.

    Raises:
        ValueError: if `values` is empty.
    """
    if not len(values):
        raise ValueError("an interval needs at least one value")
    sample = np.asarray(values, dtype=np.float64)
    indices = bootstrap_indices(len(sample), 1, 5_000)
    means = resampled(sample[:, None], indices)[..., 0].mean(axis=1)
    return percentile_interval(float(sample.mean()), means, 0.95)


def bootstrap_indices(num_scores: int, num_strata: int, num_resamples: int, *, seed: int = 0) -> Indices:
    """Sample the indices of resampled scores, [N, R, K], independently for each stratum."""
    return np.random.default_rng(seed).integers(num_scores, size=(num_resamples, num_scores, num_strata))


def resampled(scores: Floats, indices: Indices) -> Floats:
    """Select from scores [R, K] by indices [N, R, K], separately for each stratum. Returns [N, R, K]."""
    return np.take_along_axis(scores[None], indices, axis=1)


def percentile_interval(value: float, samples: Floats, confidence: float) -> Interval:
    """Percentile interval of an estimate from its resamples [N] (Efron and Tibshirani, 1993, chapter 13)."""
    tail = (1 - confidence) / 2
    low, high = np.quantile(samples, [tail, 1 - tail])
    return Interval(value, float(low), float(high))
