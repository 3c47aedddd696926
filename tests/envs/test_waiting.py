"""Agents that wait: they need no reply, get rewards and feedback, and act again later."""

import pytest
from waiting_worlds import TurnGame


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
