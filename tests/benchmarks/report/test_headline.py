"""What a page says first: the order of the methods, and no more than the runs can tell."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from recorded import read_summaries, write_classic_run, write_run

from collm.algorithms.rollout.intervals import Interval
from collm.benchmarks.report.comparison import Comparison
from collm.benchmarks.report.figures import sections
from collm.benchmarks.report.headline import headline
from collm.benchmarks.report.tables import Estimate, TableOfText


def comparison(folder: Path, bonus: dict[str, float], seeds: int = 3) -> Comparison:
    for seed in range(seeds):
        for name, more in bonus.items():
            write_run(folder / name / f"{seed}", name, seed, bonus=more)
    return Comparison(read_summaries(folder))


def test_the_highest_is_named_with_what_lies_between_it_and_the_next(tmp_path):
    compared = comparison(tmp_path, {"magrpo": 0.0, "maac": 0.1})
    found = headline(compared)
    assert found.sentence.startswith("MAAC ends highest") and " 0.91 [" in found.sentence
    assert "0.1 [0.1, 0.1] above MAGRPO" in found.sentence
    (chart,) = found.charts
    assert [bar.method for bar in chart.bars] == ["MAAC", "MAGRPO"]
    assert chart.bars[0].runs == pytest.approx([0.9, 0.91, 0.92]) and chart.level == pytest.approx(0.06, abs=0.02)
    first, *_ = sections(compared)
    ((bar,),) = (chart.bars for chart in first.charts)
    assert bar.method == "MAGRPO" and bar.estimate.value == pytest.approx(0.1)


def test_methods_that_end_alike_or_have_a_single_seed_are_not_told_apart(tmp_path):
    found = headline(comparison(tmp_path / "alike", {"magrpo": 0.0, "maac": 0.0}))
    assert "not significantly better than" in found.sentence and "above" not in found.sentence
    found = headline(comparison(tmp_path / "single", {"magrpo": 0.0, "maac": 0.1}, seeds=1))
    assert "MAAC" in found.sentence and "not significantly better than MAGRPO" in found.sentence
    assert np.isnan(found.charts[0].bars[0].estimate.low)


def test_environments_on_different_scales_are_ranked_one_by_one(tmp_path):
    for seed in range(3):
        write_run(tmp_path / "maac" / f"{seed}", "maac", seed)
        write_classic_run(tmp_path / "cart" / f"{seed}", "iac", seed, rate=20.0)
    found = headline(Comparison(read_summaries(tmp_path)))
    assert [chart.title for chart in found.charts] == ["build", "CartPole"]
    assert found.sentence.startswith("In build, MAAC reaches") and "In CartPole, IAC reaches" in found.sentence


def test_environments_are_ranked_one_by_one_if_a_method_lacks_some(tmp_path):
    (here,) = comparison(tmp_path, {"magrpo": 0.0}, seeds=1).summaries
    elsewhere = replace(here, algorithm="IAC", environment="bridge")
    found = headline(Comparison([here, elsewhere]))
    assert found.sentence.count("reaches a return of 0.8") == 2 and len(found.charts) == 2
    assert headline(Comparison([])).sentence.startswith("No run") and sections(Comparison([])) == []


def cell(value: float, low: float, high: float) -> Estimate:
    return Estimate(f"{value}", Interval(value, low, high))


def test_marks_of_cells_by_hand():
    rows = [["a", cell(0.9, 0.8, 1.0)], ["b", cell(0.7, 0.6, 0.8)], ["c", cell(0.5, 0.4, 0.79)], ["d", "-"]]
    assert TableOfText("", "", ["", "x"], rows, best="highest").marks() == {(0, 1): "best", (1, 1): "near"}
    lowest = TableOfText("", "", ["", "x"], rows, best="lowest").marks()
    assert lowest == {(2, 1): "best", (1, 1): "near"}
    assert TableOfText("", "", ["", "x"], rows).marks() == {}
    never = float("inf")
    rows = [["a", cell(never, never, never)], ["b", cell(50.0, 40.0, never)]]
    assert TableOfText("", "", ["", "x"], rows, best="lowest").marks() == {(1, 1): "best"}
    assert TableOfText("", "", ["", "x"], [rows[0], rows[0]], best="lowest").marks() == {}
    assert TableOfText("", "", ["", "x"], [rows[1], rows[1]], best="lowest").marks() == {}
    rows = [["a", cell(0.9, 0.8, 1.0)], ["b", cell(0.85, np.nan, np.nan)]]
    assert TableOfText("", "", ["", "x"], rows, best="highest").marks() == {(0, 1): "best"}
    rows = [["a", cell(0.2, 0.1, 0.3), cell(-0.2, -0.3, -0.1)], ["b", cell(0.2, -0.1, 0.5), cell(0.1, 0.0001, 0.2)]]
    found = TableOfText("", "", ["", "x", "y"], rows, even=0).marks()
    assert found == {(0, 1): "above", (0, 2): "below"}  # 0.0001 would be printed as 0.000
