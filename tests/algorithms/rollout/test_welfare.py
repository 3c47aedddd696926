"""Welfare measures by hand, and their laws."""

import pytest

from collm.algorithms.rollout.welfare import welfare


@pytest.mark.parametrize(
    ("returns", "measures"),
    [
        ([3.0, 1.0], {"sum": 4.0, "minimum": 1.0, "nash_product": 3.0, "gini": 4 / 16}),
        ([2.0, 2.0, 2.0], {"sum": 6.0, "minimum": 2.0, "nash_product": 8.0, "gini": 0.0}),
        ([0.0, 0.0, 6.0], {"sum": 6.0, "minimum": 0.0, "nash_product": 0.0, "gini": 2 / 3}),  # 1 - 1/N: one has all
        ([0.0, 0.0], {"sum": 0.0, "minimum": 0.0, "nash_product": 0.0}),
        ([-1.0, 3.0], {"sum": 2.0, "minimum": -1.0}),
    ],
)
def test_welfare_by_hand(returns, measures):
    assert welfare(returns) == pytest.approx(measures)
    assert welfare(returns[::-1]) == pytest.approx(measures)


def test_gini_ignores_the_unit_of_the_returns():
    returns = [1.0, 4.0, 2.5]
    assert welfare([7 * each for each in returns])["gini"] == pytest.approx(welfare(returns)["gini"])
