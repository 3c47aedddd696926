"""Delay of decisions while copies are stepping, with a fake clock."""

from types import SimpleNamespace

import pytest

from collm.agents.core import Completion, Policy
from collm.algorithms.rollout import collector as module
from collm.algorithms.rollout.collector import Plan, RolloutCollector
from collm.envs.core import Outcome, TextParallelEnv
from collm.envs.vectors.vector import SyncVector

DECISION_S = 8.0


class Long(TextParallelEnv):
    def __init__(self):
        super().__init__(["player_0"], 4)

    def deal(self, task):
        return {"player_0": "go"}

    def play(self, replies):
        return Outcome(0.0, {"player_0": "on"})


class Clock:
    now = 100.0

    def perf_counter(self):
        return self.now


class Deciding(Policy):
    def __init__(self, clock):
        self.clock = clock
        self.asked = []

    def act(self, requests, *, greedy=False):
        self.clock.now += DECISION_S
        self.asked.append(len(requests))
        return [Completion("x") for _ in requests]


class Trickling(SyncVector):
    """Vector whose results arrive one by one, `step_s` apart. A result later than the timeout does not arrive."""

    def __init__(self, clock, num_envs, step_s):
        super().__init__(Long, num_envs)
        self.clock, self.step_s = clock, step_s
        self.arrived = {}
        self.timeouts = []

    def ready(self, timeout_s=None):
        self.timeouts.append(timeout_s)
        self.arrived |= super().ready()
        if timeout_s is not None and timeout_s < self.step_s:
            self.clock.now += timeout_s
            return {}
        self.clock.now += self.step_s
        place = next(iter(self.arrived))
        return {place: self.arrived.pop(place)}


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=clock.perf_counter))
    return clock


@pytest.mark.parametrize(
    ("num_envs", "step_s", "timeouts", "asked"),
    [
        (6, 0.5, [None, None, 7.5, 7.0, 0.5, None], [1, 4]),  # the third is half of them, the fourth arrives in time
        (4, 0.75, [None, None, 7.25, 0.5, None], [1, 2]),  # the third arrives too late
        (2, 0.75, [None, None, 1.25, None], [1, 2]),  # all arrive in time
    ],
)
def test_decisions_wait_for_half_of_the_copies_and_then_a_quarter_of_a_decision_for_all(
    clock, num_envs, step_s, timeouts, asked
):
    """The second decision waits up to 8 s for half of the copies, and up to 2 s for all."""
    vector, policy = Trickling(clock, num_envs, step_s), Deciding(clock)
    made = RolloutCollector(vector, {"player_0": policy})
    episodes = made.collect([Plan(seed) for seed in range(num_envs)])
    assert vector.timeouts[: len(timeouts)] == timeouts
    assert policy.asked[:2] == asked
    assert [episode.num_turns for episode in episodes] == [4] * num_envs
    assert sum(policy.asked) == 4 * num_envs


def test_seconds_are_the_policies_or_the_environment_s(clock):
    vector, policy = Trickling(clock, 2, 1.0), Deciding(clock)
    made = RolloutCollector(vector, {"player_0": policy})
    begun = clock.now
    made.collect([Plan(seed) for seed in range(3)])
    decoding = DECISION_S * len(policy.asked)
    assert made.seconds == {"decoding": decoding, "environment": clock.now - begun - decoding}
