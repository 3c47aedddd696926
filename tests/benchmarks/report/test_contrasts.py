"""Contrasts that are stated beforehand: scores of runs, Student's test and Holm's correction, by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from collm.benchmarks.comparison.suite import Contrast
from collm.benchmarks.comparison.summaries import RunSummary
from collm.benchmarks.report.comparison import Comparison
from collm.benchmarks.report.contrasts import contrast_table, findings, holm, run_score, student_test


def run(algorithm, seed, successes, *, environment="cross", turns=4, per_update=16, held_out=0.5):
    """A finished run of so many episodes per update, with the share of successes of each."""
    steps = [per_update * turns * (number + 1) for number in range(len(successes))]
    return RunSummary(
        algorithm=algorithm,
        environment=environment,
        seed=seed,
        place=(0, 0),
        is_finished=True,
        threshold=None,
        budget={},
        experiment={"algorithm": algorithm, "config": {}},
        curves={
            "environment_steps": steps,
            "turns": [float(turns)] * len(steps),
            "metric/success": [share / turns for share in successes],
        },
        evaluations=[
            {"evaluation/sampled/metric/success": 0.0},
            {"evaluation/sampled/metric/success": held_out / turns, "evaluation/sampled/return": 3 * held_out},
        ],
        diagnostics=[],
    )


def test_scores_of_a_run_by_hand():
    """48 episodes are three updates of 16: (0.6 + 0.8 + 1) / 3 is the first mean of 0.8."""
    found = run("a", 0, [0.0, 0.0, 0.6, 0.8, 1.0, 1.0], held_out=0.75)
    assert run_score(found, "success") == pytest.approx(0.75)
    assert run_score(found, "return") == pytest.approx(2.25)
    assert run_score(found, "training success") == pytest.approx(3.4 / 6)
    assert run_score(found, "episodes") == pytest.approx(math.log2(5 * 16))
    assert run_score(run("a", 0, [1.0, 1.0, 0.0, 0.0]), "episodes") == math.inf, "a lucky start does not count"


def test_students_test_is_scipys():
    values = np.array([0.3, -0.1, 0.4, 0.2, 0.5])
    interval, p = student_test(values)
    theirs = stats.ttest_1samp(values, 0.0)
    low, high = theirs.confidence_interval()
    assert (interval.value, interval.low, interval.high, p) == pytest.approx((values.mean(), low, high, theirs.pvalue))
    assert student_test(np.array([0.2, 0.2]))[1] == 0.0 and student_test(np.array([0.0, 0.0]))[1] == 1.0
    assert math.isnan(student_test(np.array([0.3]))[1])


def test_holms_correction_by_hand():
    """0.01 * 3, 0.02 * 2, then 0.03 * 1, which may not be less than the one before."""
    assert holm([0.03, 0.01, 0.02]) == pytest.approx([0.04, 0.03, 0.04])
    assert holm([0.6, 0.9]) == [1.0, 1.0]
    with_nan = holm([math.nan, 0.04])
    assert math.isnan(with_nan[0]) and with_nan[1] == 0.04


def test_contrasts_pair_seeds_and_correct_within_their_family():
    runs = [
        run(name, seed, [0.5], held_out=base + 0.1 * seed)
        for name, base in (("a", 0.6), ("b", 0.5))
        for seed in range(3)
    ]
    runs += [run("a", 7, [0.5], held_out=1.0)]  # no partner
    first = Contrast("a - b", ((1.0, "a", "cross"), (-1.0, "b", "cross")), "success", is_primary=True)
    second = Contrast("a - half", ((1.0, "a", "cross"), (-0.5, "b", "cross")), "success")
    third = Contrast("a + b", ((1.0, "a", "cross"), (1.0, "b", "cross")), "success")
    absent = Contrast("none", ((1.0, "a", "cross"), (-1.0, "c", "cross")), "success", is_primary=True)
    found = findings([second, first, third, absent], Comparison(runs))
    assert [each.contrast.name for each in found] == ["a - half", "a - b", "a + b"]
    assert [each.num_seeds for each in found] == [3, 3, 3]
    assert [each.estimate.value for each in found] == pytest.approx([0.7 - 0.3, 0.1, 1.3])
    assert found[1].corrected_p == found[1].p
    assert found[0].corrected_p == pytest.approx(max(2 * min(found[0].p, found[2].p), found[0].p))
    assert contrast_table(found).rows[0][:2] == ["a - b", "primary"]


def test_a_ratio_of_episodes_counts_who_never_got_there_with_the_whole_budget():
    slow, never = [0.0] * 5 + [1.0] * 3, [0.0] * 8
    quick = [1.0] * 8
    runs = [run("a", seed, quick) for seed in (0, 1)] + [run("b", 0, slow), run("b", 1, never)]
    ratio = Contrast("a / b", ((1.0, "a", "cross"), (-1.0, "b", "cross")), "episodes")
    (found,) = findings([ratio], Comparison(runs))
    assert found.num_never == 1
    assert found.estimate.value == pytest.approx(np.mean([math.log2(3 / 8), math.log2(3 / 8)]))
    row = contrast_table([found]).rows[0]
    assert row[3].startswith("0.375 [0.375, 0.375]") and row[-1] == "2, 1 never"
