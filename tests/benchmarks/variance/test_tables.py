"""The bench's page, from a cell made up."""

from __future__ import annotations

from collm.benchmarks.variance.tables import cell_table, overview


def row(critic, trace, correlation, *, variance=1.0, gradient=4.0):
    numbers = {"variance": variance, "correlation": correlation, "gradient_variance": gradient, "samples": None}
    return {"critic": critic, "trace": trace, **numbers}


CELL = {
    "policy": "start",
    "env_kwargs": {"max_turns": 8},
    "return": 0.25,
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
    assert cells[1:] == ["0.25", "0.30", "0.40", "0.60", "-", "1.00", "4.0", "2.2 |"]


def test_gradients_are_in_units_of_the_constant_s():
    lines = {line.split(" | ")[0].strip("| "): line.split(" | ")[1:] for line in cell_table(CELL).splitlines()}
    assert lines["own"] == ["0.50 · 0.20 · 0.50", "1.00 · 0.40 · 1.00 |"]
    assert lines["constant"][0] == "-" and lines["joint"][1] == "1.00 · - · 1.00 |"
