"""Games of TextArena."""

import enum
import random
import sys
import warnings

import pytest
from replies import begun

from collm._errors import UserError
from collm.envs import check_env, make
from collm.envs.views.textarena import TextArena, _with_author

NUMBER = "GuessTheNumber-v0-raw"
DILEMMA = "IteratedPrisonersDilemma-v0-raw"


@pytest.fixture
def textarena():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip("textarena")


needs_textarena = pytest.mark.usefixtures("textarena")


def halving(env, seed):
    low, high = 1, 20
    observations, _ = env.reset(seed=seed)
    earned = 0.0
    while env.agents:
        guess = (low + high) // 2
        observations, rewards, *_ = env.step({"player_0": f"[{guess}]"})
        earned += rewards["player_0"]
        told = observations["player_0"].messages[-1].content
        low, high = (guess + 1, high) if "higher" in told else (low, guess - 1)
    return earned


@needs_textarena
def test_a_game_of_one_player_is_won_by_good_play_and_leaves_the_global_generator_alone():
    env = make("collm.envs.views.textarena:TextArena", game=NUMBER)
    before = random.getstate()
    assert [halving(env, seed) for seed in range(5)] == [1.0] * 5
    assert random.getstate() == before
    assert "same_seed" in check_env(lambda: TextArena(NUMBER, max_turns=4))


@needs_textarena
def test_partners_play_the_other_seats():
    read = []

    def partner(agent, observation, rng):
        read.append((agent, str(observation)))
        return "[Defect]"

    env = begun(TextArena(DILEMMA, num_players=2, seat=0, partners=partner), seed=0)
    rewards = []
    while env.agents:
        rewards.append(env.step({"player_0": "[Cooperate]"})[1]["player_0"])
    assert rewards[-1] == -1.0 and not any(rewards[:-1])
    assert read[0][0] == "player_1" and "[player_0] [Cooperate]" in read[0][1]


def test_missing_partners_and_seats_are_refused(monkeypatch):
    with pytest.raises(ValueError, match="2 players"):
        TextArena(DILEMMA, num_players=2)
    with pytest.raises(ValueError, match=r"seat.*got 1"):
        TextArena(NUMBER, seat=1)
    monkeypatch.setitem(sys.modules, "textarena", None)
    with pytest.raises(UserError, match="pip install textarena"):
        TextArena(NUMBER)
    kind = enum.Enum("Kind", "PROMPT").PROMPT
    for message in ((1, "hi", kind), (kind, "hi", 1)):
        assert _with_author(message, reader=0) == "[player_1] hi"
    assert _with_author((kind, "rules", -1), 0) == _with_author((-1, "rules", kind), 0) == "rules"
    assert _with_author((0, "my own", kind), 0) is None
