"""Payment of turns: the return is the best score of an episode."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collm.envs.coding.functions import HumanEval
from collm.envs.coding.sandboxed_env import Judgement

pytestmark = pytest.mark.usefixtures("sandbox")


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
