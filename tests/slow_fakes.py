"""Environments that take their time. Worker processes import this module, so it does without torch."""

from __future__ import annotations

import os
import time
from random import Random

from collm.envs import Outcome, TextParallelEnv


class Dawdling(TextParallelEnv):
    """Two agents; every turn takes a time of its own, of which nothing is said; one in five ends the game."""

    def __init__(self, seconds: float = 0.01):
        super().__init__(("player_0", "player_1"), max_turns=4)
        self.seconds = seconds
        self.delays = Random()

    def deal(self, task):
        return dict.fromkeys(self.agents, f"{task} {self.rng.random()}")

    def play(self, replies):
        time.sleep(self.delays.uniform(0, 2 * self.seconds))
        finished = frozenset(self.agents) if self.rng.random() < 0.2 else frozenset()
        return Outcome(self.rng.random(), dict.fromkeys(replies, str(sorted(replies.values()))), finished=finished)


class Waiting(TextParallelEnv):
    """One agent, one turn; it ends when the file that the reply names is there."""

    def __init__(self):
        super().__init__(("player_0",), max_turns=1)

    def deal(self, task):
        return {"player_0": "wait"}

    def play(self, replies):
        (reply,) = replies.values()
        path = reply.removeprefix("wait for ")
        limit = time.monotonic() + 30
        while path != reply and not os.path.exists(path) and time.monotonic() < limit:
            time.sleep(0.005)
        return Outcome(float(path == reply or os.path.exists(path)), {})
