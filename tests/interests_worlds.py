"""Two small games in which the agents' rewards differ: a dilemma with mixed interests, and matching pennies."""

from collections.abc import Mapping
from typing import ClassVar

from collm.envs import Outcome, TextParallelEnv

PLAYERS = ("player_0", "player_1")
PAYOFFS = {("share", "share"): (3.0, 2.0), ("share", "keep"): (0.0, 4.0), ("keep", "share"): (5.0, 0.0)}


class Dilemma(TextParallelEnv):
    """Both share: 3 and 2. One keeps: it gets 5 (player 0) or 4 (player 1). Both keep: 1 each. Other replies: 0."""

    metadata = TextParallelEnv.metadata | {"name": "dilemma_v0"}
    interests = "mixed"
    allowed_exploits: ClassVar[dict[str, str]] = {}

    def __init__(self, max_turns: int = 1):
        super().__init__(PLAYERS, max_turns)

    def deal(self, task: object) -> dict[str, str]:
        return dict.fromkeys(self.agents, "Share or keep?")

    def play(self, replies: Mapping[str, str]) -> Outcome:
        said = tuple(replies[agent] for agent in PLAYERS)
        known = {"share", "keep"}.issuperset(said)
        paid = PAYOFFS.get(said, (1.0, 1.0) if known else (0.0, 0.0))
        return Outcome(dict(zip(PLAYERS, paid, strict=True)))

    def reference_reply(self, agent: str) -> str:
        return "share"

    def ceilings(self) -> dict[str, float]:
        return {"optimum": 2.5, "equilibrium": 1.0}

    def partners(self) -> dict:
        return {"keeper": lambda agent: "keep", "giver-held-out": lambda agent: "share"}


class Pennies(TextParallelEnv):
    """Matching pennies. Player 0 wins 1 from player 1 if both reply the same side. A reply that is no side loses 1."""

    metadata = TextParallelEnv.metadata | {"name": "pennies_v0"}
    interests = "opposed"

    def __init__(self, is_readable: bool = False):
        super().__init__(PLAYERS, 1)
        self.is_readable = is_readable  # the reference of player 1 then always replies "heads"

    def deal(self, task: object) -> dict[str, str]:
        self.sides = {agent: self.rng.choice(("heads", "tails")) for agent in self.agents}
        if self.is_readable:
            self.sides[PLAYERS[1]] = "heads"
        return dict.fromkeys(self.agents, "Heads or tails?")

    def play(self, replies: Mapping[str, str]) -> Outcome:
        first, second = (replies[agent] for agent in PLAYERS)
        sign = 1.0 if first == second else -1.0
        wrong = [reply not in ("heads", "tails") for reply in (first, second)]
        if any(wrong):
            sign = float(wrong[1] - wrong[0])
        return Outcome(dict(zip(PLAYERS, (sign, -sign), strict=True)))

    def reference_reply(self, agent: str) -> str:
        return self.sides[agent]

    def exploits(self) -> dict:
        return {"always heads": lambda agent: "heads"}
