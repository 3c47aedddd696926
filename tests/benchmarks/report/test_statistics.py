import json
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import t

from collm.algorithms.rollout import intervals
from collm.algorithms.rollout.intervals import bootstrap_indices
from collm.benchmarks.report import statistics

REFERENCE = Path(__file__).parent / "rliable_reference.json"
ESTIMATORS = {"mean": statistics.mean, "median": statistics.median, "iqm": statistics.interquartile_mean}


@pytest.fixture
def scores() -> np.ndarray:
    return np.array([[0.0, 4.0], [1.0, 5.0], [2.0, 6.0], [3.0, 7.0]])


def test_estimates_by_hand(scores):
    assert statistics.mean(scores) == 3.5
    assert statistics.median(scores) == 3.5
    assert statistics.interquartile_mean(scores) == 3.5
    assert statistics.interquartile_mean(np.array([[0.0], [1.0], [2.0], [3.0], [100.0]])) == 2.0
    first, second = np.array([[1.0], [2.0]]), np.array([[0.0], [2.0]])
    assert statistics.probability_of_improvement(first, second) == (2 + 0.5 + 0) / 4
    assert statistics.performance_profile(scores, np.array([-1.0, 3.0, 7.0])).tolist() == [1.0, 0.5, 0.0]


def test_either_method_is_better_or_they_tie():
    rng = np.random.default_rng(0)
    first, second = rng.integers(4, size=(2, 6, 3)).astype(float)
    both = statistics.probability_of_improvement(first, second) + statistics.probability_of_improvement(second, first)
    assert both == pytest.approx(1)


def test_intervals_follow_the_scores_inside_their_bounds(scores):
    found = statistics.interval(statistics.mean, scores)
    moved = statistics.interval(statistics.mean, scores + 10)
    assert found.low < found.value < found.high
    assert moved.low == pytest.approx(found.low + 10) and moved.high == pytest.approx(found.high + 10)
    few = np.array([[0.9], [1.0]])
    free, cut = statistics.interval(statistics.mean, few), statistics.interval(statistics.mean, few, bounds=(0, 1))
    assert free.high > 1.1 and (cut.value, cut.low, cut.high) == (free.value, free.low, 1.0)
    found = statistics.difference(statistics.mean, np.array([[1.0], [0.2]]), np.array([[0.0], [0.1]]), bounds=(0, 1))
    assert (found.low, found.high) == (-1.0, 1.0)
    outside = statistics.interval(statistics.mean, np.array([[1.9], [2.1]]), bounds=(0, 1))
    assert (outside.value, outside.high) == (2.0, 2.0)  # the estimate stays in the interval
    rng = np.random.default_rng(0)
    luck = rng.normal(size=(6, 2))
    found = statistics.difference(statistics.mean, luck + 0.1, luck)
    assert found.value == pytest.approx(0.1)
    assert found.high - found.low < 1e-9


def test_scores_that_are_not_paired_or_single_have_no_interval(scores):
    with pytest.raises(ValueError, match="same seeds"):
        statistics.difference(statistics.mean, scores, scores[:3])
    scores[0, 0] = np.nan
    with pytest.raises(ValueError, match="finite"):
        statistics.interval(statistics.mean, scores)
    found = statistics.interval(statistics.mean, np.array([[1.0, 2.0]]))
    assert found.value == 1.5 and np.isnan(found.low) and np.isnan(found.high)
    with pytest.raises(ValueError, match="two"):
        intervals.widening(1, 3, 0.95)


@pytest.mark.parametrize(
    ("num_runs", "num_tasks", "confidence", "factor"),
    [
        (2, 1, 0.95, 9.168172071309598),
        (5, 1, 0.95, 1.5837842021961737),
        (5, 5, 0.95, 1.1899086165107386),
        (10, 3, 0.9, 1.0915400844799013),
    ],
)
def test_widening_by_hand(num_runs, num_tasks, confidence, factor):
    assert intervals.student_quantile(0.975, num_runs) == pytest.approx(t.ppf(0.975, num_runs), rel=1e-9)
    assert intervals.widening(num_runs, num_tasks, confidence) == pytest.approx(factor, rel=1e-9)


def test_estimates_agree_with_rliable():
    """rliable 1.2, with the same bootstrap indices."""
    reference = json.loads(REFERENCE.read_text())
    first, second = np.array(reference["first"]), np.array(reference["second"])
    indices = np.array(reference["indices"])
    for name, estimator in ESTIMATORS.items():
        found = statistics.interval(estimator, first, indices, is_widened=False)
        assert [found.value, found.low, found.high] == pytest.approx(reference[name], abs=1e-6)
    pair = np.array(reference["indices_first"]), np.array(reference["indices_second"])
    found = statistics.improvement(first, second, pair, is_widened=False)
    assert [found.value, found.low, found.high] == pytest.approx(reference["improvement"], abs=1e-6)
    bands = statistics.profile_bands(first, np.array(reference["thresholds"]), indices)
    assert np.array(bands) == pytest.approx(np.array(reference["profile"]), abs=1e-6)


def coverage(estimator, num_runs: int, num_tasks: int, *, is_widened: bool, num_trials: int = 600) -> float:
    """How often the interval holds the truth, over simulated comparisons of normal scores around known means."""
    rng = np.random.default_rng(1)
    truths = np.linspace(0, 1, num_tasks)
    truth = truths.mean()
    indices = bootstrap_indices(num_runs, num_tasks, 4_000)
    hits = 0
    for _ in range(num_trials):
        scores = truths + 0.3 * rng.normal(size=(num_runs, num_tasks))
        found = statistics.interval(estimator, scores, indices, is_widened=is_widened)
        hits += found.low <= truth <= found.high
    return hits / num_trials


@pytest.mark.parametrize(("num_runs", "num_tasks"), [(5, 1), (5, 3), (10, 1)])
def test_intervals_hold_the_truth_as_often_as_they_say(num_runs, num_tasks):
    """600 trials: the share itself is known to 0.018 (two standard deviations)."""
    assert coverage(statistics.mean, num_runs, num_tasks, is_widened=True) == pytest.approx(0.95, abs=0.025)


def test_plain_percentiles_of_five_runs_do_not():
    assert coverage(statistics.mean, 5, 1, is_widened=False) < 0.90
