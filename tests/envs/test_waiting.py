"""Agents that wait: they need no reply, get rewards and feedback, and act again later."""

import json

import pytest
from waiting_worlds import PLAYERS, TurnGame

from collm.envs.checks.checker import check_env
from collm.envs.players import played, scripted_player
from collm.envs.views import Conversations, SingleAgent
from collm.envs.views.aec import to_aec
from collm.envs.views.phrases import reference_phrases
from collm.envs.wrappers import Partnered, Recorded, Shares


def test_waiting_agents_need_no_reply_and_get_rewards_and_feedback() -> None:
    env = TurnGame()
    observations, infos = env.reset(seed=0)
    assert infos == {"player_0": {}, "player_1": {"waits": True}} and set(observations) == {"player_0", "player_1"}
    observations, rewards, terminations, _, infos = env.step({"player_0": "a", "player_1": "ignored"})
    assert rewards == {"player_0": 1.0, "player_1": 2.0} and not any(terminations.values())
    assert infos["player_0"] == {"waits": True} and infos["player_1"] == {}
    assert observations["player_1"] == "You are player_1.\nplayer_0 a\n"
    assert "ignored" not in env.state()
    with pytest.raises(ValueError, match="'player_1' is missing"):
        env.step({"player_0": "a"})
    _, _, _, _, infos = env.step({"player_1": "b"})
    assert infos == {"player_0": {}, "player_1": {}}
    _, rewards, terminations, _, _ = env.step({"player_0": "c", "player_1": "d"})
    assert rewards == {"player_0": 1.0, "player_1": 1.0} and all(terminations.values())


@pytest.mark.parametrize("movers", [(), ("player_2",), "player_1"])
def test_movers_must_be_live_agents(movers: tuple[str, ...]) -> None:
    env = TurnGame((movers,))
    env.reset(seed=0)
    with pytest.raises(ValueError, match="movers must name"):
        env.step({"player_0": "a"})


def test_players_and_wrappers_ask_no_waiting_agent(tmp_path) -> None:
    env = TurnGame()
    player = scripted_player(env, "reference")
    assert player is not None and played(env, player, seed=0)[0] == 4.0
    recorded = Recorded(TurnGame(), tmp_path)
    player = scripted_player(recorded, "reference")
    assert player is not None and played(Shares(recorded), player, seed=0)[0] == 4.0
    (line,) = (tmp_path / "episodes.jsonl").read_text().splitlines()
    record = json.loads(line)
    assert record["return"] == 4.0 and record["agents"]["player_1"]["waiting"] == {"0": 2.0}
    assert [turn["time"] for turn in record["agents"]["player_1"]["turns"]] == [1, 2]
    assert reference_phrases(TurnGame(), 1)["player_1"] == ("player_1 in turn 1", "player_1 in turn 2")


def test_partners_act_while_the_agents_wait() -> None:
    env = Partnered(TurnGame((("player_0",), ("player_1",)), first="player_1"), {"player_0": "reference"})
    _, infos = env.reset(seed=0)
    assert infos == {"player_1": {}}
    assert env.step({"player_1": "a"})[4] == {"player_1": {"waits": True}}
    _, rewards, _, _, infos = env.step({})
    assert rewards == {"player_1": 2.0} and infos == {"player_1": {}}


def test_a_single_agent_waits_for_its_partners() -> None:
    env = SingleAgent(TurnGame(), "player_1")
    observation, info = env.reset(seed=0)
    assert "player_0 in turn 0" in observation and not info.get("waits")
    assert env.step("a")[1:4] == (3.0, False, False)
    assert env.step("b")[1:4] == (1.0, True, False)
    with pytest.raises(RuntimeError, match="reset"):
        env.step("c")
    env = SingleAgent(TurnGame((("player_0",),)), "player_1")
    env.reset(seed=0)
    assert env.step("never read")[1:4] == (4.0, True, False)


def test_conversations_name_the_agents_that_reply() -> None:
    talks = Conversations(TurnGame())
    talks.reset(seed=0)
    assert talks.movers == ["player_0"] and talks.agents == ["player_0", "player_1"]
    heard = talks.step({"player_0": "a"})
    assert heard["player_0"].text == heard["player_1"].text == "player_0 a" and talks.movers == ["player_1"]
    with pytest.raises(ValueError, match="player_1"):
        talks.step({"player_0": "a"})


def test_only_movers_are_selected_in_the_aec_form() -> None:
    env = to_aec(TurnGame())
    env.reset(seed=0)
    selected, earned = [], dict.fromkeys(PLAYERS, 0.0)
    for agent in env.agent_iter():
        _, reward, ended, *_ = env.last()
        selected.append(agent)
        earned[agent] += reward
        env.step(None if ended else "a")
    assert selected[:4] == ["player_0", "player_1", "player_0", "player_1"]
    assert earned == {"player_0": 4.0, "player_1": 4.0}


def test_the_check_passes() -> None:
    assert "waiting" in check_env(TurnGame)
