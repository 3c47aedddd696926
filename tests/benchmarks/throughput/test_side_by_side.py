"""Models in one thread and in two: rounds are timed, with a look at what others do before each and after the last."""

from __future__ import annotations

import torch

from collm.benchmarks.throughput.side_by_side import measure, table
from collm.benchmarks.throughput.timing import Watch, watching


def test_the_load_of_others_is_looked_at_before_each_round_and_after_the_last():
    before = torch.get_num_threads()
    with watching(Watch(lambda: 0.0)) as watch:
        rates = measure(2, num_envs=4, max_new_tokens=2)
    assert [rate.name.split(",")[0] for rate in rates] == ["one after the other", "one after the other", "side by side"]
    assert all(len(rate.turns) == len(rate.updates) == 2 and min(rate.turns) > 0 for rate in rates)
    assert watch.loads == [0.0] * 3 and "idle" in watch.verdict()
    assert torch.get_num_threads() == before
    shown = table(rates, (0.0, 0.1))
    assert shown.count("medians of the last, beside one after the other") == 2
