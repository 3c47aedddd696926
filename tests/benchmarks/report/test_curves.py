from dataclasses import replace

import numpy as np
import pytest
from matplotlib.figure import Figure
from recorded import read_summaries, write_run

from collm.benchmarks.report import statistics
from collm.benchmarks.report.comparison import Comparison
from collm.benchmarks.report.figures import sections, svg


def test_smoothing_thinning_and_the_student_interval_of_points_by_hand():
    assert statistics.smoothed(np.array([2.0, 4.0, 6.0, 8.0]), 2).tolist() == [2.0, 3.0, 5.0, 7.0]
    assert statistics.smoothed(np.full(7, 3.0), 5) == pytest.approx(3.0)
    values = np.arange(1.0, 8.0)
    assert statistics.thinned(values, 7) is values
    assert statistics.thinned(values, 3).tolist() == [2.0, 5.0, 7.0]
    assert statistics.thinned(values, 3, keeps="last").tolist() == [3.0, 6.0, 7.0]
    costs, line = np.array([0.0, 10.0]), np.array([1.0, 3.0])
    grid, middle, half = statistics.mean_curve([(costs, line), (costs, line + 2.0)], 1)
    assert statistics.mean_curve([(costs, line), (costs + 4.0, line)], 1)[0][[0, -1]].tolist() == [4.0, 10.0]
    assert (grid[0], grid[-1]) == (0.0, 10.0) and middle == pytest.approx(2.0 + 0.2 * grid)
    assert half == pytest.approx(12.706, abs=1e-3)  # t(0.975, 1) * sqrt(2) / sqrt(2)
    assert statistics.mean_curve([(costs, line)], 1)[2] is None


def test_the_cost_to_reach_a_threshold_by_hand():
    cost, scores = np.array([10.0, 20.0, 30.0, 40.0]), np.array([0.0, 1.0, 1.0, 1.0])
    assert statistics.cost_to_reach(cost, scores, 1.0, width=2) == 30.0
    assert statistics.cost_to_reach(cost, scores, 0.5, width=2) == 20.0
    assert statistics.cost_to_reach(cost, scores, 1.1, width=2) == statistics.NEVER
    # One lucky batch at the start does not count.
    assert statistics.cost_to_reach(np.arange(1.0, 9.0), np.array([1.0, *[0.0] * 7]), 0.5) == statistics.NEVER
    found = statistics.median_cost([10.0, 20.0, statistics.NEVER])
    assert (found.median, found.num_reached, found.num_runs) == (20.0, 2, 3)
    assert found.low == 10.0 and found.high == statistics.NEVER and str(found) == "20 [10, never], 2 of 3"
    found = statistics.median_cost([10.0, statistics.NEVER, statistics.NEVER, statistics.NEVER, statistics.NEVER])
    assert found.median == statistics.NEVER and found.num_reached == 1


def test_curves_without_a_common_range_of_costs_are_drawn_one_by_one(tmp_path):
    for seed in range(2):
        write_run(tmp_path / f"{seed}", "maac", seed)
    fast, slow = read_summaries(tmp_path)
    late = replace(slow, curves={**slow.curves, "seconds/total": [100.0 + update for update in range(8)]})
    (curves,) = (each for each in sections(Comparison([fast, late])) if each.title == "Learning curves")
    drawn = {chart.x: svg(chart, ["MAAC"]) for chart in curves.charts}
    assert ["each run" in drawn[cost] for cost in ("environment steps", "seconds")] == [False, True]


def test_three_methods_have_a_panel_each_and_bands_inside_the_range_of_returns(tmp_path):
    for seed in range(2):
        write_run(tmp_path / f"{seed}", "maac", seed, bonus=0.2 * seed)
    runs = [replace(run, algorithm=name) for name in ("a", "b", "c") for run in read_summaries(tmp_path)]
    comparison = Comparison(runs)
    assert comparison.bounds("build") == (0.0, 1.0)
    (curves,) = (each for each in sections(comparison) if each.title == "Learning curves")
    assert [list(chart.panels) for chart in curves.charts] == [["all methods", "a", "b", "c"]] * 3
    (alone,) = (each for each in sections(Comparison(runs[:2])) if each.title == "Learning curves")
    assert list(alone.charts[0].panels) == ["build"]
    for name, num_bands in (("all methods", 0), ("b", 1)):
        axes = Figure().subplots()
        curves.charts[0].panels[name](axes, {method: {"color": "black"} for method in "abc"})
        bands = [band.get_paths()[0].get_extents() for band in axes.collections]
        assert len(bands) == num_bands and len(axes.lines) == 3
        assert all(band.y0 >= 0.0 and band.y1 == 1.0 for band in bands)  # the interval of two seeds is wider
