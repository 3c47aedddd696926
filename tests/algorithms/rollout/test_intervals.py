"""Bootstrap intervals by hand, and from fixed resampling indices."""

import numpy as np
import pytest

from collm.algorithms.rollout import intervals


def test_intervals_by_hand_and_of_strata_each_on_its_own():
    with pytest.raises(ValueError, match="at least one value"):
        intervals.bootstrap_interval([])
    assert str(intervals.Interval(0.5, 0.25, 1.0)) == "0.500 [0.250, 1.000]"
    found = intervals.percentile_interval(7.0, np.arange(101.0), 0.9)
    assert (found.value, found.low, found.high) == (7.0, pytest.approx(5.0), pytest.approx(95.0))
    scores = np.array([[0.0, 10.0], [1.0, 11.0], [2.0, 12.0]])
    drawn = intervals.resampled(scores, intervals.bootstrap_indices(3, 2, 50))
    assert drawn.shape == (50, 3, 2)
    assert set(drawn[..., 0].ravel()) == {0.0, 1.0, 2.0} and set(drawn[..., 1].ravel()) == {10.0, 11.0, 12.0}
    assert not np.array_equal(drawn[..., 0] + 10, drawn[..., 1])


@pytest.mark.parametrize("count", [1, 2, 5, 20, 64, 100])
def test_an_interval_is_that_of_published_evaluations_bit_for_bit(count):
    values = np.random.default_rng(count).normal(size=count)
    means = values[np.random.default_rng(0).integers(count, size=(5_000, count))].mean(axis=1)
    low, high = np.quantile(means, [(1 - 0.95) / 2, 1 - (1 - 0.95) / 2])
    assert intervals.bootstrap_interval(values.tolist()) == intervals.Interval(values.mean(), low, high)
