"""The environment TinyHanabi: six published games in which the first action is also a message."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import isqrt
from typing import Any, ClassVar, Literal, get_args

from ...core import Outcome
from ..pictured import refuse_other
from .core import Phase, TalkEnv
from .solutions import Payoffs, best_plan

Game = Literal["A", "B", "C", "D", "E", "F"]
CARDS, ACTIONS = ("wood", "stone", "brick"), ("lamp", "rug", "desk")
# One digit (a = 10) per second action; one word per (first card, second card, first action), the last one the fastest.
_PAYOFFS: Mapping[Game, str] = {
    "A": "01 00 01 32 33 32 20 33",
    "B": "10 10 01 01 01 00 10 10",
    "C": "30 03 20 33 22 30 01 02",
    "D": "30 13 30 30 32 02 01 00",
    "E": "a00 484 a00 00a 484 00a 00a 484 000 a00 484 a00",
    "F": "03 32 00 01 31 21 02 01 12 12 01 03 13 12 03 22 31 30",
}
_RULES = """\
Builder 0 and builder 1 hold a card each, which only its holder sees. Builder 0 acts, and then builder 1, which {} the \
action of builder 0. The actions follow the word "goal". The payoff of both depends on the card of builder 0, the card \
of builder 1, the action of builder 0 and the action of builder 1, in this order:"""


class TinyHanabi(TalkEnv):
    """Two agents hold a card each and act one after the other; the payoff depends on both cards and both actions.

    The first action is the only message: with an open channel, the second agent reads it before it acts. The team's
    reward is the payoff divided by the highest payoff of the game. In game A, reading the action is worth nothing; in
    game E, 10 instead of 8. The tables are the tiny Hanabi suite (https://github.com/ssokota/tiny-hanabi); game E is
    also the default of OpenSpiel's tiny_hanabi.

    Args:
        game: "A" to "F".
        **kwargs: see `TalkEnv`.
    """

    metadata: ClassVar[dict[str, Any]] = {**TalkEnv.metadata, "name": "tiny_hanabi_v0"}
    cues: ClassVar[Mapping[Phase, str]] = {"say": "task", "do": "task"}

    def __init__(self, game: Game = "E", **kwargs: Any):
        refuse_other("game", game, get_args(Game))
        super().__init__(2, 2, **kwargs)
        self._payoffs = payoffs(game)
        self._actions = ACTIONS[: len(self._payoffs[0][0])]
        self._top = max(pay for cards in self._payoffs for rows in cards for row in rows for pay in row)
        self._plans = {hears: best_plan(self._payoffs, hears) for hears in (True, False)}
        self.num_tasks = len(self._payoffs) ** 2

    def phase(self, turn: int) -> tuple[Phase, Sequence[str]]:
        return "do" if turn else "say", self.possible_agents[turn : turn + 1]

    def begin(self, task: int) -> None:
        self._cards = divmod(task, len(self._payoffs))

    def facts(self, agent: str) -> str:
        return f"{CARDS[self._cards[self.possible_agents.index(agent)]]} goal {' '.join(self._actions)}"

    def rules(self) -> tuple[str, str]:
        rows = [
            f"{CARDS[mine]} {CARDS[theirs]} {self._actions[first]}: "
            + ", ".join(f"{word} {pay}" for word, pay in zip(self._actions, row, strict=True))
            for mine, by_card in enumerate(self._payoffs)
            for theirs, by_action in enumerate(by_card)
            for first, row in enumerate(by_action)
        ]
        return "\n".join([_RULES.format("reads" if self._channel != "silent" else "does not read"), *rows]), "an action"

    def options(self, agent: str) -> Sequence[str]:
        return self._actions

    def message(self, agent: str, reply: str) -> str:
        return self.named(agent, reply) or self.rng.choice(self._actions)

    def act(self, actions: Mapping[str, str]) -> Outcome:
        first, second = (self._actions.index(action) for action in (*self.said.values(), *actions.values()))
        pay = self._payoffs[self._cards[0]][self._cards[1]][first][second] / self._top
        return Outcome(pay, terms={"payoff": pay})

    def truth(self) -> str:
        return " ".join(f"builder {seat} {CARDS[card]}" for seat, card in enumerate(self._cards))

    def policy(self, agent: str, hears: bool) -> str:
        plan, (mine, theirs) = self._plans[hears], self._cards
        if agent == self.possible_agents[0]:
            return self._actions[plan.first[mine]]
        said = self.named(agent, self.heard[agent][-1][1]) if hears and self.heard[agent] else None
        return self._actions[plan.second[theirs, self._actions.index(said) if said else 0]]

    def partners(self) -> Mapping[str, Callable[[str], str]]:
        """Return strangers with the best plan, and (held out) with the best plan without messages."""
        return {"hearing": partial(self.policy, hears=True), "deaf-held-out": partial(self.policy, hears=False)}

    def ceilings(self) -> Mapping[str, float]:
        """Return exact mean rewards. The best plan is unique in each game, so that strangers need no convention."""
        best, silent = (self._plans[hears].value / self._top for hears in (True, False))
        return {"optimum": best, "silent": silent, "strangers": best}


def payoffs(game: Game) -> Payoffs:
    rows = [tuple(int(digit, 16) for digit in word) for word in _PAYOFFS[game].split()]
    num_actions = len(rows[0])
    num_cards = isqrt(len(rows) // num_actions)
    pairs = [tuple(rows[start : start + num_actions]) for start in range(0, len(rows), num_actions)]
    return tuple(tuple(pairs[card * num_cards : (card + 1) * num_cards]) for card in range(num_cards))
