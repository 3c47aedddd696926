import gzip
import math
from pathlib import Path

import numpy as np
import pytest
from recorded import made_summary
from scipy import stats

from collm.benchmarks.comparison.suite import Contrast, read_suite
from collm.benchmarks.comparison.summaries import kept_summaries
from collm.benchmarks.report.comparison import Comparison
from collm.benchmarks.report.contrasts import contrast_table, findings, holm, run_score, start_means, student_test


def run(algorithm, seed, successes, *, environment="cross", turns=4, per_update=16, held_out=0.5, model="tiny"):
    """A finished run of so many episodes per update, with the share of successes of each."""
    steps = [per_update * turns * (number + 1) for number in range(len(successes))]
    curves = {"environment_steps": steps, "turns": [float(turns)] * len(steps)}
    curves |= {"metric/success": [share / turns for share in successes]}
    success = "evaluation/sampled/metric/success"
    evaluations = [{success: 0.0}, {success: held_out / turns, "evaluation/sampled/return": 3 * held_out}]
    settings = {"env_kwargs": {"max_turns": turns}, "config": {}, "model": {"model": model}}
    return made_summary(algorithm, environment, seed, curves, evaluations, algorithm=algorithm, **settings)


def test_scores_of_a_run_by_hand():
    """48 episodes are three updates of 16: (0.6 + 0.8 + 1) / 3 is the first mean of 0.8."""
    found = run("a", 0, [0.0, 0.0, 0.6, 0.8, 1.0, 1.0], held_out=0.75)
    assert run_score(found, "success") == pytest.approx(0.75)
    assert run_score(found, "return") == pytest.approx(2.25)
    assert run_score(found, "training success") == pytest.approx(3.4 / 6)
    assert run_score(found, "episodes") == pytest.approx(math.log2(5 * 16))
    assert run_score(run("a", 0, [1.0, 1.0, 0.0, 0.0]), "episodes") == math.inf  # a lucky start does not count


def test_students_test_is_scipys_and_holms_correction_by_hand():
    values = np.array([0.3, -0.1, 0.4, 0.2, 0.5])
    found = student_test(values)
    theirs = stats.ttest_1samp(values, 0.0)
    low, high = theirs.confidence_interval()
    ours = (found.estimate.value, found.estimate.low, found.estimate.high, found.p)
    assert ours == pytest.approx((values.mean(), low, high, theirs.pvalue))
    assert student_test(np.array([0.2, 0.2])).p == 0.0 and student_test(np.array([0.0, 0.0])).p == 1.0
    assert math.isnan(student_test(np.array([0.3])).p)
    assert holm([0.03, 0.01, 0.02]) == pytest.approx([0.04, 0.03, 0.04])
    assert holm([0.6, 0.9]) == [1.0, 1.0]
    with_nan = holm([math.nan, 0.04])
    assert math.isnan(with_nan[0]) and with_nan[1] == 0.04


def test_contrasts_pair_seeds_and_correct_within_their_family():
    runs = [
        run(name, seed, [0.5], held_out=0.5 + 0.1 * seed + 0.1 * (name == "a")) for name in "ab" for seed in range(3)
    ]
    runs += [run("a", 7, [0.5], held_out=1.0)]  # no partner
    first = Contrast("a - b", ((1.0, "a", "cross"), (-1.0, "b", "cross")), "success", is_primary=True)
    second = Contrast("a - half", ((1.0, "a", "cross"), (-0.5, "b", "cross")), "success")
    third = Contrast("a + b", ((1.0, "a", "cross"), (1.0, "b", "cross")), "success")
    absent = Contrast("none", ((1.0, "a", "cross"), (-1.0, "c", "cross")), "success", is_primary=True)
    found = findings([second, first, third, absent], Comparison(runs))
    assert [each.contrast.name for each in found] == ["a - half", "a - b", "a + b"]
    minus_half, difference, plus = (each.over_seeds for each in found)
    assert [each.num_values for each in (minus_half, difference, plus)] == [3, 3, 3]
    values = [each.estimate.value for each in (minus_half, difference, plus)]
    assert values == pytest.approx([0.7 - 0.3, 0.1, 1.3])
    assert difference.corrected_p == difference.p
    assert minus_half.corrected_p == pytest.approx(max(2 * min(minus_half.p, plus.p), minus_half.p))
    assert contrast_table(found).rows[0][:2] == ["a - b", "primary"]


def test_seeds_of_one_start_count_once_by_hand():
    """Starts x, y and z have means 0.1, 0.3 and 0.8: mean 0.4, deviation sqrt(0.13), and t of 2 degrees is 4.3027."""
    gains = {0: ("x", 0.0), 1: ("y", 0.3), 2: ("z", 0.7), 3: ("x", 0.2), 4: ("z", 0.9)}
    runs = [run("a", seed, [0.5], held_out=gain, model=name) for seed, (name, gain) in gains.items()]
    runs += [run("b", seed, [0.5], held_out=0.0, model=name) for seed, (name, _) in gains.items()]
    terms = ((1.0, "a", "cross"), (-1.0, "b", "cross"))
    (found,) = findings([Contrast("a - b", terms, "success", is_primary=True)], Comparison(runs))
    half = 4.302653 * math.sqrt(0.13 / 3)
    seeds, starts = found.over_seeds, found.over_starts
    assert (seeds.num_values, starts.num_values) == (5, 3)
    assert starts.estimate.value == pytest.approx(0.4) and seeds.estimate.value == pytest.approx(0.42)
    assert starts.estimate.low == pytest.approx(0.4 - half)
    assert starts.estimate.high == 1.0  # of two fractions; the interval would end at 1.296
    assert starts.p == pytest.approx(stats.ttest_1samp([0.1, 0.3, 0.8], 0.0).pvalue)
    table = contrast_table([found])
    assert table.header[-3:] == ["over starts", "p over starts, corrected", "starts"] and table.rows[0][-1] == "3"


def test_starts_have_one_mean_each_as_in_the_exact_test_of_a_random_effect():
    table = np.random.default_rng(0).normal(0.5, 1.0, size=(4, 3))  # [starts, seeds]
    values = {3 * row + column: table[row, column] for row in range(4) for column in range(3)}
    means = start_means(values, {seed: {f"start-{seed // 3}"} for seed in values})
    between = 3 * ((table.mean(axis=1) - table.mean()) ** 2).sum() / 3
    expected = 12 * table.mean() ** 2 / between
    assert stats.ttest_1samp(means, 0.0).statistic ** 2 == pytest.approx(expected)
    models = {0: {"old/1"}, 1: {"old/2"}, 2: {"new/1"}, 3: {"old/1", "new/1"}, 4: {"new/2", "old/2"}}
    means = start_means({0: 1.0, 1: 10.0, 2: 2.0, 3: 3.0, 4: 20.0}, models)
    assert sorted(means) == [2.0, 15.0]


def test_seeds_of_a_single_start_say_nothing_of_another():
    runs = [run(name, seed, [0.5], held_out=0.1 * seed) for name in "ab" for seed in range(3)]
    contrast = Contrast("a + b", ((1.0, "a", "cross"), (1.0, "b", "cross")), "success")
    (found,) = findings([contrast], Comparison(runs))
    starts = found.over_starts
    assert starts.num_values == 1 and math.isnan(starts.estimate.low) and math.isnan(starts.p)
    assert contrast_table([found]).header[-1] == "seeds"


def test_a_ratio_of_episodes_counts_who_never_got_there_with_the_whole_budget():
    slow, never = [0.0] * 5 + [1.0] * 3, [0.0] * 8
    quick = [1.0] * 8
    runs = [run("a", seed, quick) for seed in (0, 1)] + [run("b", 0, slow), run("b", 1, never)]
    ratio = Contrast("a / b", ((1.0, "a", "cross"), (-1.0, "b", "cross")), "episodes")
    (found,) = findings([ratio], Comparison(runs))
    assert found.num_never == 1
    assert found.over_seeds.estimate.value == pytest.approx(math.log2(3 / 8))
    row = contrast_table([found]).rows[0]
    assert row[3].startswith("0.375 [0.375, 0.375]") and row[-1] == "2, 1 never"


def test_the_contrasts_of_the_findings_follow_from_the_stored_scores_of_all_seeds(root, tmp_path):
    stored = gzip.decompress((root / "benchmarks/results/replication/summaries.jsonl.gz").read_bytes())
    (tmp_path / "summaries.jsonl").write_bytes(stored)
    contrasts = read_suite(Path("replication")).contrasts
    table = contrast_table(findings(contrasts, Comparison(kept_summaries(tmp_path))))
    rows = [[str(row[place]) for place in (3, 5, 7, 8)] for row in table.rows]
    page = (root / "docs/findings.md").read_text().split("*Table 1.")[0]
    shown = [line.strip("| ").split(" | ")[2:] for line in page.splitlines() if line.startswith("| MAAC ")]
    assert len(rows) == len(contrasts) == 7 and shown == rows
