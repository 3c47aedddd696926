"""Skipped episodes: limit, groups and faults."""

from __future__ import annotations

import pytest
from faulty_worlds import AGENTS, Texts

from collm.agents.core import Completion, Policy
from collm.algorithms.rollout.collector import Plan, RolloutCollector
from collm.envs import EnvironmentFault, SyncVector
from collm.envs.vectors.faults import Course


class Same(Policy):
    """Policy with a constant reply that stores the decoding modes."""

    def __init__(self):
        self.greedy = set()

    def act(self, requests, *, greedy=False):
        self.greedy.add(greedy)
        return [Completion("hello") for _ in requests]


class Losing(SyncVector):
    """Loses the episodes of some seeds, as if their worker processes had died twice."""

    def __init__(self, bad, kind=""):
        super().__init__(Texts, 3, kind=kind)
        self.bad = bad
        self.given_up = {}

    def send(self, actions):
        bad = {place for place in actions if self.courses[place].seed in self.bad}
        for place in bad:
            fault = self.given_up[place] = EnvironmentFault("gave up")
            fault.course = Course(self.courses[place].seed)
        super().send({place: joint for place, joint in actions.items() if place not in bad})

    def lost(self):
        lost, self.given_up = self.given_up, {}
        return lost


def collector(vector):
    return RolloutCollector(vector, dict.fromkeys(AGENTS, Same()))


@pytest.mark.parametrize(("num_plans", "num_skipped"), [(4, 1), (15, 1), (20, 2), (39, 3)])
def test_one_episode_may_be_given_up_or_a_tenth_of_them_and_no_more(num_plans, num_skipped):
    plans = [Plan(seed, group=seed) for seed in range(num_plans)]
    bad = {1 + 2 * number for number in range(num_skipped)}
    made = collector(Losing(bad))
    assert [each.seed for each in made.collect(plans)] == sorted(set(range(num_plans)) - bad)
    assert sorted(fault.seed for fault in made.skipped) == sorted(bad)
    assert all(fault.episode == fault.seed for fault in made.skipped)
    with pytest.raises(EnvironmentFault, match=r"episode (\d+), seed \1.*: gave up"):
        collector(Losing(bad | {0})).collect(plans)
    assert [each.index for each in made.collect([Plan(40), Plan(41)])] == [num_plans, num_plans + 1]
    assert made.skipped == []


def test_a_group_that_lost_a_rollout_is_left_out_and_where_none_is_left_the_fault_is_raised():
    plans = [Plan(seed, group=seed // 2) for seed in range(6)]
    assert [each.seed for each in collector(Losing({3})).collect(plans)] == [0, 1, 4, 5]
    with pytest.raises(EnvironmentFault, match=r"episode 1, seed 7.*: gave up"):
        collector(Losing({7})).collect([Plan(6), Plan(7), Plan(8)])
    assert collector(Losing({7})).collect([]) == []


def test_a_fault_tells_its_episode_whole_or_cut():
    for play in (lambda made: made.collect([Plan(3), Plan(5)]), lambda made: made.collect_turns(9, iter(range(3, 99)))):
        made = collector(Losing(set(), "step raises"))
        made.next_index = 40
        with pytest.raises(EnvironmentFault, match="episode 40, seed 3, turn 2: step raised ZeroDivisionError"):
            play(made)


@pytest.mark.parametrize("greedy", [True, False])
def test_policies_sample_unless_they_are_asked_to_be_greedy(greedy):
    made = collector(Losing(set()))
    made.collect([Plan(0)], **({"greedy": True} if greedy else {}))
    assert made.policies[AGENTS[0]].greedy == {greedy}
    made.collect_turns(1, iter(range(9)))
    assert made.policies[AGENTS[0]].greedy == {greedy, False}
