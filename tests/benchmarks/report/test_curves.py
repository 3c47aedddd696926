"""Curves by cost, and the cost of reaching a threshold."""

from dataclasses import replace

import numpy as np
import pytest
from recorded import read_summaries, write_run

from collm.benchmarks.report.comparison import Comparison
from collm.benchmarks.report.figures import sections, svg
from collm.benchmarks.report.statistics import (
    NEVER,
    cost_to_reach,
    mean_curve,
    median_cost,
    smoothed,
    thinned,
)


def test_smoothing_and_thinning_by_hand():
    assert smoothed(np.array([2.0, 4.0, 6.0, 8.0]), 2).tolist() == [2.0, 3.0, 5.0, 7.0]
    assert smoothed(np.full(7, 3.0), 5) == pytest.approx(3.0)
    values = np.arange(1.0, 8.0)
    assert thinned(values, 7) is values
    assert thinned(values, 3).tolist() == [2.0, 5.0, 7.0]
    assert thinned(values, 3, keeps="last").tolist() == [3.0, 6.0, 7.0]


def test_a_mean_curve_has_the_student_interval_of_its_points():
    costs, line = np.array([0.0, 10.0]), np.array([1.0, 3.0])
    grid, middle, half = mean_curve([(costs, line), (costs, line + 2.0)], 1)
    assert mean_curve([(costs, line), (costs + 4.0, line)], 1)[0][[0, -1]].tolist() == [4.0, 10.0]
    assert (grid[0], grid[-1]) == (0.0, 10.0) and middle == pytest.approx(2.0 + 0.2 * grid)
    assert half == pytest.approx(12.706, abs=1e-3)  # t(0.975, 1) * sqrt(2) / sqrt(2)
    assert mean_curve([(costs, line)], 1)[2] is None


def test_the_cost_to_reach_a_threshold_by_hand():
    cost, scores = np.array([10.0, 20.0, 30.0, 40.0]), np.array([0.0, 1.0, 1.0, 1.0])
    assert cost_to_reach(cost, scores, 1.0, width=2) == 30.0
    assert cost_to_reach(cost, scores, 0.5, width=2) == 20.0
    assert cost_to_reach(cost, scores, 1.1, width=2) == NEVER

    # One lucky batch at the start does not count.
    assert cost_to_reach(np.arange(1.0, 9.0), np.array([1.0, *[0.0] * 7]), 0.5) == NEVER
    found = median_cost([10.0, 20.0, NEVER])
    assert (found.median, found.num_reached, found.num_runs) == (20.0, 2, 3)
    assert found.low == 10.0 and found.high == NEVER and str(found) == "20 [10, never], 2 of 3"
    found = median_cost([10.0, NEVER, NEVER, NEVER, NEVER])
    assert found.median == NEVER and found.num_reached == 1


def test_curves_without_a_common_range_of_costs_are_drawn_one_by_one(tmp_path):

    for seed in range(2):
        write_run(tmp_path / f"{seed}", "maac", seed)
    fast, slow = read_summaries(tmp_path)
    late = replace(slow, curves={**slow.curves, "seconds/total": [100.0 + update for update in range(8)]})
    (curves,) = (each for each in sections(Comparison([fast, late])) if each.title == "Learning curves")
    drawn = {chart.x: svg(chart, ["MAAC"]) for chart in curves.charts}
    assert ["each run" in drawn[cost] for cost in ("environment steps", "seconds")] == [False, True]
