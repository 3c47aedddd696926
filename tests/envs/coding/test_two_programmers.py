"""Returns of several turns: no team earns more than one that solves the task in the first turn."""

from __future__ import annotations

import copy
import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collm.envs.coding.classes import ClassEval
from collm.envs.coding.functions import HumanEval
from collm.envs.coding.two_programmers import Judgement

pytestmark = pytest.mark.usefixtures("sandbox")

ROW = {
    "task_id": "half",
    "prompt": 'def is_even(a):\n    """Whether a is even."""\n',
    "entry_point": "is_even",
    "test": "def check(candidate):\n"
    + "".join(f"    assert candidate({number}) is {number % 2 == 0}\n" for number in (2, 4, 6, 7)),
}
AUX, IDLE = "def aux(x):\n    return x % 2", "def aux(*a):\n    return 1"
TEAMS = {
    "nothing": ("", ""),
    "no program": (AUX, "def is_even(a):\n    return ("),
    "constant beside an idle helper": (IDLE, "def is_even(*a):\n    h = aux(0)\n    return True if h else None"),
    "constant alone": ("", "def is_even(a):\n    return True"),
    "half of it": (AUX, "def is_even(a):\n    return a < 3 and aux(a) == 0"),
    "solved alone": ("", "def is_even(a):\n    return a % 2 == 0"),
    "solved beside a helper": (IDLE, "def is_even(a):\n    return a % 2 == 0"),
    "solved by the helper": ("def aux(x):\n    return x % 2 == 0", "def is_even(a):\n    return aux(a)"),
    "solved together": (AUX, "def is_even(a):\n    return aux(a) == 0"),
}
TOGETHER = "solved together"


def episodes(env, teams, played=()):
    """Yield every sequence of these replies that the environment allows, with its return."""
    for name, replies in teams.items():
        branch = copy.deepcopy(env)
        rewards = branch.step(dict(zip(branch.agents, replies, strict=True)))[1]
        earned = rewards[env.possible_agents[0]]
        if not branch.agents:
            yield (*played, name), earned
        else:
            for names, more in episodes(branch, teams, (*played, name)):
                yield names, earned + more


SKELETON = '''class Pair:
    def __init__(self):
        self.a, self.b = 1, 2

    def total(self):
        """The sum."""

    def scaled(self, by):
        """The sum, times by."""
'''
CLASS_ROW = {
    "task_id": "pair",
    "class_name": "Pair",
    "skeleton": SKELETON,
    "test": "import unittest\nclass T(unittest.TestCase):\n    def test_total(self):\n"
    "        self.assertEqual(Pair().total(), 3)\n    def test_scaled(self):\n"
    "        self.assertEqual(Pair().scaled(2), 6)\n    def test_zero(self):\n"
    "        self.assertEqual(Pair().scaled(0), 0)\n",
}
TOTAL, SCALED = "def total(self):\n    return self.a + self.b", "def scaled(self, by):\n    return 3 * by"
ZERO = "def scaled(self, by):\n    return 0"
CLASS_TEAMS = {
    "nothing": ("", ""),
    "empty bodies": ("def total(self):\n    x = 1", "def scaled(self, by):\n    x = 1"),
    "one method left out": (TOTAL, ""),
    "one method wrong": (TOTAL, ZERO),
    "solved by both, twice over": (f"{TOTAL}\n{SCALED}", f"{TOTAL}\n{SCALED}"),
    "solved by one": ("pass", f"{TOTAL}\n{SCALED}"),
    TOGETHER: (TOTAL, SCALED),
}


CASES = [(HumanEval, ROW, TEAMS, 4.0, stop_at) for stop_at in (3.8, None, 2.0)] + [
    (ClassEval, CLASS_ROW, CLASS_TEAMS, 6.0, stop_at) for stop_at in (5.8, None)
]


@pytest.mark.parametrize(("game", "row", "teams", "best", "stop_at"), CASES)
def test_a_team_that_fails_a_test_earns_less_than_any_that_solves_the_task(jsonl, game, row, teams, best, stop_at):
    env = game(data=jsonl(row), stop_at=stop_at)
    env.reset(seed=0)
    returns = dict(episodes(env, teams))
    solving = {names: value for names, value in returns.items() if any(name.startswith("solved") for name in names)}
    failing = [value for names, value in returns.items() if names not in solving]
    assert failing and max(failing) < min(solving.values())
    at_once = [value for names, value in returns.items() if names[0] == TOGETHER]
    assert max(returns.values()) == pytest.approx(best) == pytest.approx(min(at_once))


@settings(max_examples=60, deadline=None)
@given(
    scores=st.lists(st.floats(0, 4), min_size=6, max_size=6),
    max_turns=st.integers(1, 6),
    stop_at=st.none() | st.floats(0, 4),
)
def test_a_return_is_the_best_score_of_the_turns_that_were_played(scores, max_turns, stop_at):
    env = HumanEval(max_turns=max_turns, stop_at=stop_at)
    given_scores = iter(scores)
    env.judge = lambda replies: Judgement({"tests": next(given_scores)}, {}, "", dict.fromkeys(env.programmers, ""))
    env.reset(seed=0)
    total, num_turns = 0.0, 0
    while env.agents:
        _, rewards, _, _, infos = env.step(dict.fromkeys(env.agents, ""))
        terms = [value for name, value in infos["main_0"].items() if name.startswith("reward/")]
        assert rewards["main_0"] == pytest.approx(sum(terms), abs=1e-12) and rewards["main_0"] > -1e-12
        total, num_turns = total + rewards["main_0"], num_turns + 1
    assert total == pytest.approx(max(scores[:num_turns]), abs=1e-9)
    reached = itertools.takewhile(lambda score: stop_at is None or score < stop_at - 1e-9, scores)
    assert num_turns == min(max_turns, len(list(reached)) + 1)
