"""The bench's page, from a cell made up."""

from __future__ import annotations

from math import exp, log, sqrt

import pytest
from scipy import stats

from collm.benchmarks.variance.tables import cell_table, draw_samples, overview, ratio_of_samples


def row(critic, trace, correlation, *, variance=1.0, gradient=4.0, without=None):
    numbers = {"variance": variance, "correlation": correlation, "gradient_variance": gradient, "samples": None}
    return {"critic": critic, "trace": trace, "left_out": without or [correlation] * 3, **numbers}


CELL = {
    "policy": "start",
    "env_kwargs": {"max_turns": 8, "num_agents": 2, "feedback": "cross"},
    "return": 0.25,
    "explained_share": {"own": 0.05, "joint": 0.2, "privileged": None, "ideal table": 0.4},
    "rows": [
        row("constant", 1.0, 0.3),
        row("own", 0.0, 0.2, variance=0.5, gradient=2.0),
        row("own", 1.0, 0.4),
        row("joint", 0.0, 0.6),
        row("joint", 1.0, None),
        row("privileged", 0.0, None),
        row("ideal table", 0.0, 1.0),
    ],
}


def test_what_to_expect_is_the_squared_ratio_of_the_best_correlations():
    cells = overview([CELL]).splitlines()[-1].split(" | ")
    exact = ["0.30 ± 0.00", "0.40 ± 0.00", "0.60 ± 0.00", "-", "1.00 ± 0.00"]
    assert cells[1:] == ["0.25", *exact, "4.0 [4.0, 4.0]", "2.2 [2.2, 2.2]", "0.05", "0.20", "0.40 |"]


def test_the_ratio_of_samples_has_the_interval_of_what_tasks_left_out_change():
    better, other = row("joint", 0.0, 0.6, without=[0.5, 0.6, 0.7]), row("own", 0.0, 0.3)
    moved = [2 * log(each / 0.3) for each in (0.5, 0.6, 0.7)]
    mean = sum(moved) / 3
    reach = stats.t.ppf(0.975, 2) * sqrt(2 / 3 * sum((each - mean) ** 2 for each in moved))
    assert ratio_of_samples(better, other) == pytest.approx((4.0, 4 * exp(-reach), 4 * exp(reach)))
    assert ratio_of_samples(better, row("own", 0.0, -0.1)) is None
    assert ratio_of_samples(better, row("own", 0.0, 0.3, without=[0.3, None, 0.3])) is None


def test_samples_are_drawn(tmp_path):
    longer = {**CELL, "env_kwargs": {**CELL["env_kwargs"], "max_turns": 12}}
    draw_samples([longer, CELL], tmp_path / "samples.png")
    assert (tmp_path / "samples.png").stat().st_size > 5000


def test_where_no_correlation_is_known_the_figure_is_drawn_without_samples(tmp_path):
    blank = {**CELL, "rows": [row(critic, 0.0, None) for critic in ("constant", "own", "joint", "ideal table")]}
    draw_samples([blank], tmp_path / "samples.png")
    assert (tmp_path / "samples.png").is_file()


def test_gradients_are_in_units_of_the_constant_s():
    lines = {line.split(" | ")[0].strip("| "): line.split(" | ")[1:] for line in cell_table(CELL).splitlines()}
    assert lines["own"] == ["0.50 · 0.20 · 0.50", "1.00 · 0.40 · 1.00 |"]
    assert lines["constant"][0] == "-" and lines["joint"][1] == "1.00 · - · 1.00 |"
