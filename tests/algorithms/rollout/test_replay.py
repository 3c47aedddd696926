"""Unfinished episodes are restored by a replay; if it differs, the error has the turn."""

import copy
from itertools import count

import numpy as np
import pytest

from collm.agents.core import Completion, Policy
from collm.algorithms.rollout.collector import RolloutCollector
from collm.algorithms.rollout.plays import Plan, ReplayError, is_same, replayed
from collm.envs.core import Outcome, TextParallelEnv
from collm.envs.vectors.vector import SyncVector

AGENTS = ("a_0", "b_0")
NAN = float("nan")


class Course(TextParallelEnv):
    """Five turns. Texts and rewards depend on seed, task and replies; b_0 leaves after the second turn."""

    def __init__(self):
        super().__init__(AGENTS, 5)

    def deal(self, task):
        return dict.fromkeys(AGENTS, f"begin {task} {self.rng.random()}")

    def play(self, replies):
        return Outcome(
            {agent: self.turn + len(reply) / 8 for agent, reply in replies.items()},
            {agent: f"heard {sorted(replies.values())} {self.rng.random()}" for agent in replies},
            finished=frozenset({"b_0"}) if self.turn == 1 else frozenset(),
        )


class Counting(Policy):
    """Replies with a counter, so that all replies differ, and stores its requests."""

    def __init__(self):
        self.numbers, self.requests = count(8), []

    def act(self, requests, *, greedy=False):
        self.requests += [
            (each.agent, each.observation, each.stream, each.previous and each.previous.action) for each in requests
        ]
        return [Completion(f"{request.agent[0]}{next(self.numbers)}") for request in requests]


def collector(policy, env=Course):
    return RolloutCollector(SyncVector(env, 2), dict.fromkeys(AGENTS, policy), reads_state=True)


@pytest.mark.parametrize("task", [None, "hard"])
def test_results_come_again_from_the_reset_to_the_last_action(task):
    actions = [{"a_0": "x", "b_0": "yy"}, {"a_0": "", "b_0": "z"}, {"a_0": "left alone"}]
    alone = Course()
    told = [alone.reset(seed=5, options=task and {"task": task})[0]] + [alone.step(joint)[:2] for joint in actions]
    vector = SyncVector(Course, 3)
    first, *others = replayed(vector, 1, Plan(5, task=task), actions)
    assert first[0] == told[0]
    assert [result[:2] for result in others] == told[1:]
    assert vector.state(1) == alone.state()


@pytest.mark.parametrize("num_turns", [1, 2, 3, 7])
def test_what_comes_after_a_replay_is_what_would_have_come(num_turns):
    unbroken, again = Counting(), Counting()
    made, other = collector(unbroken), collector(again)
    made.collect_turns(num_turns, iter(range(9)))
    state = copy.deepcopy(made.state_dict())
    other.load_state_dict(state)
    assert other.state_dict() == state
    unbroken.requests.clear()
    number = next(unbroken.numbers)  # a count cannot be copied from Python 3.12 on
    unbroken.numbers, again.numbers = count(number), count(number)
    expected, found = (each.collect_turns(4, iter(range(20, 29))) for each in (made, other))
    assert again.requests == unbroken.requests
    assert len(found) == len(expected)
    for one, two in zip(found, expected, strict=True):
        assert (one.index, one.seed, one.group, one.is_complete) == (two.index, two.seed, two.group, two.is_complete)
        assert (one.states, one.finals, one.is_terminated) == (two.states, two.finals, two.is_terminated)
        assert (one.infos, one.earlier_return, one.num_agents) == (two.infos, two.earlier_return, two.num_agents)
        assert one.team_rewards == two.team_rewards  # with the agent that has left
        assert [turn.reward for turn in one.tracks["a_0"]] == [turn.reward for turn in two.tracks["a_0"]]


@pytest.mark.parametrize(
    ("what", "num_turns", "words"),
    [
        ("rewards", 3, r"gave rewards .* in turn 2, but gives \{'a_0': 1.375, 'b_0': 1.375\}"),
        ("observations", 3, r"has other observations after turn 3"),
        ("observations", 5, r"has other observations at reset"),  # the next episode
    ],
)
def test_another_course_is_an_error_that_says_where_counted_from_1(what, num_turns, words):
    made = collector(Counting())
    made.collect_turns(num_turns, iter(range(9)))
    state = copy.deepcopy(made.state_dict())
    kept = state["unfinished"][1]
    words = rf"^episode {kept['index']} \(seed {kept['seed']}\) {words}"
    if what == "rewards":
        kept["rewards"][1]["b_0"] = 9.0
    else:
        kept["observations"]["a_0"] = "another"
    with pytest.raises(ReplayError, match=words):
        collector(Counting()).load_state_dict(state)


BOARD = np.zeros((2, 2), np.int8)
SAME = [
    *(("red", "red"), (3, np.int64(3)), (NAN, NAN), (np.array([1.0, NAN]), np.array([1.0, NAN])), ((), [])),
    *((complex(NAN, 1), complex(NAN, 1)), ((1, ("x", NAN)), [1, ["x", NAN]])),
    ({"board": BOARD, "mask": (True,)}, {"mask": [True], "board": BOARD.copy()}),
]
DIFFERENT = [
    *(("red", "blue"), ("red", ("red",)), ("1", 1), (1, 1.0), (np.float32(0.5), np.float64(0.5)), (NAN, 1.0)),
    *((np.array([1.0, 2.0]), np.array([1.0, 3.0])), (np.zeros(2), np.zeros((2, 1)))),
    *(((1, 2), (1, 3)), ((1, 2), (3, 2)), ((1, 2), (1, 2, 3)), ({"x": 1}, {"y": 1}), ({"x": 1}, {"x": 1, "y": 2})),
    *(({"x": 1, "y": 2}, {"x": 1, "y": 3}), ({"x": 1, "y": 2}, {"x": 0, "y": 2})),
    *(({"x": 1}, "x"), ({"x": 1}, ("x",)), ({}, ())),
]


@pytest.mark.parametrize(
    ("one", "other", "expected"), [*((*each, True) for each in SAME), *((*each, False) for each in DIFFERENT)], ids=str
)
def test_observations_are_the_same_if_they_differ_in_nothing(one, other, expected):
    assert is_same(one, other) == is_same(other, one) == expected
