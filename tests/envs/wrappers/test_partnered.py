"""Scripted partners in place of agents."""

from copy import deepcopy

import pytest
from replies import begun, steps_of
from waiting_worlds import TurnGame

from collm._errors import UserError
from collm.envs import make
from collm.envs.core import Outcome
from collm.envs.wrappers import Partnered

ID = "collm/MiniBuild-v0"


def episode(env, seed=3):
    rewards = [earned for _, earned, *_ in steps_of(env, seed=seed)]
    return rewards, str(env.state())


def test_a_reference_or_empty_partner_plays_as_the_reference_or_an_empty_reply_does():
    alone, joint = episode(make(ID, partners={"builder_1": "reference"}))
    together, same = episode(make(ID))
    assert joint == same
    assert [set(each) for each in alone] == [{"builder_0"}] * len(alone)
    assert [each["builder_0"] for each in alone] == [each["builder_0"] for each in together]
    env = make(ID, partners={"builder_0": "empty"})
    plain = make(ID)
    env.reset(seed=5), plain.reset(seed=5)
    while env.agents:
        reply = env.unwrapped.reference_reply("builder_1")
        rewards, expected = env.step({"builder_1": reply})[1], plain.step({"builder_0": "", "builder_1": reply})[1]
        assert rewards["builder_1"] == expected["builder_1"]
    assert not plain.agents


def test_a_random_partner_is_a_function_of_the_seed_and_a_copy_asks_its_own_world():
    env = make(ID, partners={"builder_1": "random"})
    assert episode(env, 3) == episode(env, 3) == episode(make(ID, partners={"builder_1": "random"}), 3)
    assert episode(env, 3)[1] != episode(env, 4)[1]
    env = begun(make(ID, partners={"builder_1": "reference"}), seed=3)
    env.step({"builder_0": ""})
    twin = deepcopy(env)
    env.step({"builder_0": env.unwrapped.reference_reply("builder_0")})
    silent = [twin.step({"builder_0": ""}) for _ in range(2)]
    assert str(twin.state()) != str(env.state()) and len(silent) == 2


@pytest.mark.parametrize(
    ("id", "partners", "message"),
    [
        (ID, {"builder_7": "random"}, "'builder_7'"),
        (ID, {"builder_1": "clever"}, "'clever'"),
        (ID, {"builder_0": "empty", "builder_1": "empty"}, "all agents"),
        (ID, {}, "got {}"),
        ("mpe2.simple_spread_v3:parallel_env", {"agent_1": "reference"}, "no reference player"),
    ],
)
def test_impossible_partners_are_refused(id, partners, message):
    with pytest.raises(ValueError, match=message):
        make(id, partners=partners)


def test_a_function_is_a_partner_that_gets_a_generator_of_the_seed():
    read = []

    def partner(agent, observation, rng):
        read.append((agent, observation, rng.random()))
        return "hello"

    env = Partnered(TurnGame(), {"player_1": partner})
    for _ in range(2):
        env.reset(seed=3)
        while env.agents:
            env.step({"player_0": "a"})
    assert [agent for agent, *_ in read] == ["player_1"] * 4 and read[:2] == read[2:]
    assert read[0][1] == "You are player_1.\nplayer_0 a\n"


def test_reset_plays_the_turns_before_the_first_turn_of_an_agent():
    env = Partnered(TurnGame((("player_0",), ("player_1",))), {"player_0": "reference"})
    observations, infos = env.reset(seed=0)
    assert str(observations["player_1"]).endswith("player_0 player_0 in turn 1\n") and not infos["player_1"].get(
        "waits"
    )
    assert env.step({"player_1": "a"})[1] == {"player_1": 2.0 + 2.0 + 1.0}


class Coin(TurnGame):
    """The partner's first turn ends the episode with probability 0.5."""

    ends = 0.5

    def play(self, replies):
        is_over = self.turn == 0 and self.rng.random() < self.ends
        return Outcome(1.0, is_over=is_over, movers=None if is_over else ["player_1"])


def test_an_episode_that_the_partners_end_before_the_first_turn_is_dealt_again():
    env = Partnered(Coin(), {"player_0": "empty"})
    for seed in range(20):
        observations, _ = env.reset(seed=seed)
        assert env.agents == list(observations) == ["player_1"]
        assert str(env.state()).count("[player_0 writes]") == 1
        assert env.step({"player_1": "a"})[1] == {"player_1": 2.0}


class Endless(TurnGame):
    """The game always asks player_0."""

    def __init__(self):
        super().__init__()
        self._max_turns = 10**9

    def play(self, replies):
        return Outcome(0.0, movers=["player_0"])


@pytest.mark.parametrize("game", [Endless, type("Short", (Coin,), {"ends": 1.0})])
def test_games_in_which_only_the_partners_act_are_refused(game, monkeypatch):
    monkeypatch.setattr("collm.envs.wrappers.partnered._MAX_TURNS", 50)
    with pytest.raises(UserError, match="player_1 could not act"):
        Partnered(game(), {"player_0": "empty"}).reset(seed=0)
