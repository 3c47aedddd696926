"""Agents that wait: they need no reply, get rewards and feedback, and act again later."""

from collections.abc import Mapping

import pytest

from collm.envs.core import Outcome, TextParallelEnv


class TurnGame(TextParallelEnv):
    """Two players act in turn; each turn pays 1 to the player that acts and 2 to the player that waits."""

    def __init__(self, movers: tuple[tuple[str, ...], ...] = (("player_1",), ("player_0", "player_1"))):
        super().__init__(["player_0", "player_1"], max_turns=3)
        self.next_movers = movers

    def deal(self, task: object) -> dict[str, str]:
        self.movers = ["player_0"]
        return {agent: f"You are {agent}." for agent in self.agents}

    def play(self, replies: Mapping[str, str]) -> Outcome:
        said = " ".join(f"{agent} {reply}" for agent, reply in replies.items())
        return Outcome(
            {agent: 1.0 if agent in replies else 2.0 for agent in self.agents},
            {agent: said for agent in self.agents},
            movers=self.next_movers[self.turn] if self.turn < 2 else None,
        )


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
