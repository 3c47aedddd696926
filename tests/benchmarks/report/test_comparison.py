import math
from dataclasses import replace

import pytest
from recorded import read_summaries, write_run

from collm.benchmarks.report.comparison import Comparison
from collm.benchmarks.report.headline import headline
from collm.benchmarks.report.tables import differences, final_scores


@pytest.fixture
def near_the_top(tmp_path):
    for name in ("magrpo", "maac"):
        for seed in (0, 10):
            write_run(tmp_path / name / f"{seed}", name, seed, bonus=0.0 if name == "maac" else 0.05)
    return Comparison(read_summaries(tmp_path))


def elsewhere(comparison, **changes):
    return Comparison([replace(run, experiment={**run.experiment, **changes}) for run in comparison.summaries])


def test_tables_and_the_headline_stay_inside_the_range_if_one_is_declared(near_the_top):
    assert near_the_top.bounds("build") == (0.0, 1.0)
    for cell in final_scores(near_the_top, "sampled").rows[1:]:
        assert 0 <= cell[1].interval.low and cell[1].interval.high == 1
    ((_, gap),) = differences(near_the_top, "sampled").rows
    assert -1 <= gap.interval.low <= gap.interval.high <= 1
    for bar in headline(near_the_top).charts[0].bars:
        assert bar.estimate.low >= 0 and bar.estimate.high == 1
    others = elsewhere(near_the_top, env="collm/TLDR-v2", env_kwargs={}).summaries
    both = Comparison([*near_the_top.summaries, *(replace(run, environment="tldr") for run in others)])
    assert both.bounds("build", "tldr") == (0.0, 3.48)
    for other in ({"env": "test/Unknown-v0"}, {"env_kwargs": {"unheard_of": 1}}):
        found = elsewhere(near_the_top, **other)
        assert found.bounds("build") == (-math.inf, math.inf)
        assert final_scores(found, "sampled").rows[1][1].interval.high > 1
    judged = elsewhere(near_the_top, config={**near_the_top.summaries[0].experiment["config"], "reward_model": "m"})
    assert judged.bounds("build") == (-math.inf, math.inf)
