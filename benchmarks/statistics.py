"""Scores of runs → estimates with intervals: pure functions of arrays.

Axes: R runs (seeds), K tasks, N resamples. Scores are [R, K]; every task has the same number of runs.

Point estimates and resampling follow "Deep RL at the edge of the statistical precipice" (arXiv:2108.13264). With the
handful of runs that is usual, plain percentile intervals are too short (with five runs they hold the truth 85 times of
100); see `widening` for what is done about it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]
Estimator = Callable[[Floats], Floats]

NUM_RESAMPLES = 20_000


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number and where the truth may lie."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"


def mean(scores: Floats) -> Floats:
    """Mean over tasks of the mean over runs. [..., R, K] → [...]."""
    means: Floats = scores.mean(axis=(-2, -1))
    return means


def median(scores: Floats) -> Floats:
    """Median over tasks of the mean over runs. [..., R, K] → [...]."""
    medians: Floats = np.median(scores.mean(axis=-2), axis=-1)
    return medians


def interquartile_mean(scores: Floats) -> Floats:
    """Mean of the middle half of all runs of all tasks. [..., R, K] → [...].

    Of n scores the floor(n / 4) least and as many greatest are left out.
    """
    flat = np.sort(scores.reshape(*scores.shape[:-2], -1), axis=-1)
    cut = flat.shape[-1] // 4
    middle: Floats = flat[..., cut : flat.shape[-1] - cut]
    means: Floats = middle.mean(axis=-1)
    return means


def bootstrap_indices(num_runs: int, num_tasks: int, num_resamples: int = NUM_RESAMPLES, *, seed: int = 0) -> Indices:
    """[N, R, K]: for each task on its own, which runs a resample consists of (the tasks are the strata)."""
    return np.random.default_rng(seed).integers(num_runs, size=(num_resamples, num_runs, num_tasks))


def resampled(scores: Floats, indices: Indices) -> Floats:
    """[N, R, K]: the scores that indices name, task by task."""
    return np.take_along_axis(scores[None], indices, axis=1)


def interval(
    estimator: Estimator,
    scores: Floats,
    indices: Indices | None = None,
    *,
    confidence: float = 0.95,
    is_widened: bool = True,
) -> Estimate:
    """An estimate from one array of scores, with its stratified bootstrap interval.

    Args:
        estimator: [..., R, K] → [...].
        scores: [R, K].
        indices: [N, R, K]; None: `bootstrap_indices`.
        is_widened: as of `widening`; False: the plain percentiles.

    Raises:
        ValueError: if there is no score.
    """
    scores = _checked(scores)
    if indices is None:
        indices = bootstrap_indices(*scores.shape)
    return _estimate(estimator(scores), estimator(resampled(scores, indices)), scores.shape, confidence, is_widened)


def difference(
    estimator: Estimator, first: Floats, second: Floats, *, confidence: float = 0.95, is_widened: bool = True
) -> Estimate:
    """How much the first method scores above the second, run by run with the same seed; resampled in pairs.

    Args:
        first, second: [R, K], with the same seeds in the same order.

    Raises:
        ValueError: if they cannot be paired.
    """
    if first.shape != second.shape:
        raise ValueError(f"paired differences need the same seeds and tasks, got shapes {first.shape}, {second.shape}")
    return interval(estimator, _checked(first) - _checked(second), confidence=confidence, is_widened=is_widened)


def probability_of_improvement(first: Floats, second: Floats) -> Floats:
    """How often a run of the first method beats one of the second: mean over tasks of P(X > Y) + P(X = Y) / 2.

    The Mann-Whitney statistic over the number of pairs. [..., R, K], [..., S, K] → [...].
    """
    pairs = first[..., :, None, :] - second[..., None, :, :]
    wins: Floats = ((pairs > 0) + 0.5 * (pairs == 0)).mean(axis=(-3, -2, -1))
    return wins


def improvement(
    first: Floats,
    second: Floats,
    indices: tuple[Indices, Indices] | None = None,
    *,
    confidence: float = 0.95,
    is_widened: bool = True,
) -> Estimate:
    """`probability_of_improvement` with its interval; the two methods' runs are resampled independently."""
    first, second = _checked(first), _checked(second)
    if indices is None:
        indices = bootstrap_indices(*first.shape, seed=0), bootstrap_indices(*second.shape, seed=1)
    value = probability_of_improvement(first, second)
    samples = probability_of_improvement(resampled(first, indices[0]), resampled(second, indices[1]))
    shape = (min(len(first), len(second)), first.shape[1])
    found = _estimate(value, samples, shape, confidence, is_widened)
    return Estimate(found.value, float(np.clip(found.low, 0, 1)), float(np.clip(found.high, 0, 1)))


def performance_profile(scores: Floats, thresholds: Floats) -> Floats:
    """Share of runs of all tasks with a score above each threshold. [..., R, K], [M] → [..., M]."""
    above = scores[..., None] > thresholds
    share: Floats = above.mean(axis=(-3, -2))
    return share


def profile_bands(
    scores: Floats, thresholds: Floats, indices: Indices | None = None, *, confidence: float = 0.95
) -> tuple[Floats, Floats, Floats]:
    """The performance profile and its pointwise percentile band: value, low, high; each [M]."""
    scores = _checked(scores)
    if indices is None:
        indices = bootstrap_indices(scores.shape[0], scores.shape[1], 2_000)
    samples = performance_profile(resampled(scores, indices), thresholds)
    tail = (1 - confidence) / 2
    low, high = np.quantile(samples, [tail, 1 - tail], axis=0)
    return performance_profile(scores, thresholds), low, high


def widening(num_runs: int, num_tasks: int, confidence: float) -> float:
    """By how much a bootstrap interval's ends are moved away from the estimate, so that few runs give one that holds.

        t / z * sqrt(R / (R - 1)),  t the Student quantile with K * (R - 1) degrees of freedom, z the normal one

    A resample's spread is too small by sqrt((R - 1) / R), and the tails of a mean of few runs are Student's and not
    normal. Source of both reasons: Hesterberg (arXiv:1411.5279), section 4.2; he moves the percentiles instead, which
    five runs have no room for: the truth lies beyond all five of them one time in sixteen.

    Raises:
        ValueError: if there are fewer than two runs, whose spread nobody knows.
    """
    if num_runs < 2:
        raise ValueError("an interval over runs needs at least two of them")
    probability = (1 + confidence) / 2
    quantile = student_quantile(probability, num_tasks * (num_runs - 1))
    return quantile / NormalDist().inv_cdf(probability) * math.sqrt(num_runs / (num_runs - 1))


def student_quantile(probability: float, degrees: int) -> float:
    """The t with P(T <= t) = probability, by bisection; for probabilities of at least 1/2."""
    low, high = 0.0, 1e6
    while high - low > 1e-10 * (1 + low):
        middle = (low + high) / 2
        low, high = (middle, high) if student_distribution(middle, degrees) < probability else (low, middle)
    return (low + high) / 2


def student_distribution(t: float, degrees: int) -> float:
    """P(T <= t) for Student's T with a whole number of degrees of freedom, t >= 0.

    Source: Abramowitz and Stegun, 26.7.3 and 26.7.4: finite sums in theta = atan(t / sqrt(degrees)).
    """
    theta = math.atan2(t, math.sqrt(degrees))
    sine, cosine = math.sin(theta), math.cos(theta)
    is_odd = degrees % 2
    total, term = 0.0, cosine if is_odd else 1.0
    for j in range(2 if is_odd else 1, degrees, 2):
        total += term
        term *= cosine**2 * j / (j + 1)
    between = (theta + sine * total) * 2 / math.pi if is_odd else sine * total
    return 0.5 + between / 2


def _estimate(value: Floats, samples: Floats, shape: Sequence[int], confidence: float, is_widened: bool) -> Estimate:
    center = float(value)
    if shape[0] < 2:
        return Estimate(center, math.nan, math.nan)
    tail = (1 - confidence) / 2
    low, high = np.quantile(samples, [tail, 1 - tail])
    factor = widening(shape[0], shape[1], confidence) if is_widened else 1.0
    return Estimate(center, center + factor * (float(low) - center), center + factor * (float(high) - center))


def _checked(scores: Floats) -> Floats:
    scores = np.asarray(scores, dtype=np.float64)
    if scores.ndim != 2 or not scores.size:
        raise ValueError(f"scores are an array [runs, tasks] with at least one of each, got the shape {scores.shape}")
    if not np.isfinite(scores).all():
        raise ValueError("scores must be finite; leave failed runs out, and say so")
    return scores
