"""Environments in which agents wait for turns of other agents."""

from collections.abc import Mapping

from collm.envs.core import Outcome, TextParallelEnv

PLAYERS = ("player_0", "player_1")


class TurnGame(TextParallelEnv):
    """Three turns of two players; each turn pays 1 to a player that acts and 2 to a player that waits."""

    def __init__(self, movers: tuple[tuple[str, ...], ...] = (("player_1",), PLAYERS), first: str = "player_0"):
        super().__init__(list(PLAYERS), max_turns=len(movers) + 1)
        self.next_movers = movers
        self.first = first

    def deal(self, task: object) -> dict[str, str]:
        self.movers = [self.first]
        return {agent: f"You are {agent}." for agent in self.agents}

    def play(self, replies: Mapping[str, str]) -> Outcome:
        said = " ".join(f"{agent} {reply}" for agent, reply in replies.items())
        return Outcome(
            {agent: 1.0 if agent in replies else 2.0 for agent in self.agents},
            {agent: said for agent in self.agents},
            movers=self.next_movers[self.turn] if self.turn < len(self.next_movers) else None,
        )

    def reference_reply(self, agent: str) -> str:
        assert agent in self.movers
        return f"{agent} in turn {self.turn}"
