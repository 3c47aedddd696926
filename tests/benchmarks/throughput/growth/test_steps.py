"""The measurement of environment steps counts joint turns, wherever they are made."""

from __future__ import annotations

import pytest
from faulty_worlds import Numbers

from collm.benchmarks.errors import UserError
from collm.benchmarks.throughput.growth import steps
from collm.benchmarks.throughput.timing import Spread
from collm.envs import SyncVector, register

ENV = "collm/MiniBuild-v0"


def test_joint_turns_are_counted_until_every_copy_has_played_its_episode():
    replies = steps.scripted(ENV, 3)
    with SyncVector(ENV, 3) as vector:
        assert steps.stepped(vector, replies) == sum(len(course.actions) for course in vector.courses) > 3
        assert all(not vector.agents(index) for index in range(3))


def test_an_environment_whose_agents_do_not_write_is_refused(clean_registry):
    register("test/Numbers-v0", Numbers)
    with pytest.raises(UserError, match="'test/Numbers-v0'"):
        steps.scripted("test/Numbers-v0", 1)


def test_rates_are_compared_with_the_same_in_one_process():
    rates = [
        steps.Rate("a, this process", Spread(9, 10, 11), "a, this process"),
        steps.Rate("a, 2 hosts", Spread(14, 15, 16), "a, this process"),
    ]
    assert steps.table(rates, ENV).splitlines()[-1] == "| a, 2 hosts | 15.0 (14.0-16.0) | 1.50x |"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_all_ways_are_measured():
    pytest.importorskip("ray", reason="needs collm[ray], which the extra dev brings")
    rates = steps.measure(ENV, repeats=1, num_envs=4, max_new_tokens=4)
    assert [rate.name.partition(", ")[2] for rate in rates] == [
        *("this process", "1 host", "2 hosts"),
        *("this process", "1 collector", "2 collectors"),
    ]
    assert all(rate.steps_per_s.median > 0 for rate in rates)
