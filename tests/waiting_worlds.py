"""Environments in which agents wait for turns of other agents."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from gymnasium.spaces import Box
from pettingzoo import ParallelEnv

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


class NumberTurns(ParallelEnv):
    """Three turns of two players with numbers: `player_1` waits in turns 0 and 1 and is paid 2 for it."""

    metadata: ClassVar = {"name": "number_turns_v0"}
    possible_agents: ClassVar = list(PLAYERS)

    def observation_space(self, agent: str) -> Box:
        return Box(0, 3, (1,), np.float32)

    def action_space(self, agent: str) -> Box:
        return Box(-1, 1, (1,), np.float32)

    def reset(self, seed: int | None = None, options: object = None) -> tuple[dict, dict]:
        self.agents, self.turn = list(PLAYERS), 0
        return self._seen(), {"player_0": {}, "player_1": {"waits": True}}

    def step(self, actions: Mapping[str, np.ndarray]) -> tuple[dict, ...]:
        assert set(actions) == set(PLAYERS[: 1 + (self.turn > 1)])
        rewards = {agent: float(actions[agent].sum()) if agent in actions else 2.0 for agent in PLAYERS}
        self.turn += 1
        ends = dict.fromkeys(PLAYERS, self.turn == 3)
        self.agents = [] if self.turn == 3 else list(PLAYERS)
        infos = {"player_0": {}, "player_1": {"waits": self.turn < 2}}
        return self._seen(), rewards, ends, dict.fromkeys(PLAYERS, False), infos

    def _seen(self) -> dict[str, np.ndarray]:
        return dict.fromkeys(PLAYERS, np.array([self.turn], np.float32))
