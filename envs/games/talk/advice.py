"""The environment Advice: cheap talk between an adviser that knows a number and a decider with other interests."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

from ...core import Outcome
from .core import Phase, TalkEnv
from .solutions import best_partition

NUM = 8  # states and actions are 0 to NUM - 1
STATES = range(NUM)
_RULES = """\
Builder 0 knows a number from 0 to 7 and advises builder 1, who then names a number. Builder 1 earns the more, the \
nearer its number is to the true one; builder 0, the nearer it is to the true one plus {bias:g}."""


class Advice(TalkEnv):
    """An adviser knows a number and writes a message; a decider reads the message and names a number.

    With number s, named number a and bias b, the decider (builder_1) earns 1 - (a - s)^2 / 49, and the adviser
    (builder_0) 1 - (a - s - b)^2 / (7 + b)^2. Interests are common if the bias is 0; the larger the bias, the less the
    adviser can credibly say. They are never opposed, because both agents prefer s to lower numbers. In an equilibrium,
    the adviser tells in which of several intervals the number is. Rules: Crawford and Sobel, Strategic Information
    Transmission (1982), with eight numbers.

    Args:
        bias: difference between the adviser's favourite action and the decider's, 0 to 7.
        **kwargs: see `TalkEnv`.
    """

    metadata: ClassVar[dict[str, Any]] = {**TalkEnv.metadata, "name": "advice_v0"}
    num_tasks = NUM

    def __init__(self, bias: float = 1, **kwargs: Any):
        if isinstance(bias, bool) or not 0 <= bias <= NUM - 1:
            raise ValueError(f"bias={bias!r} must be from 0 to {NUM - 1}")
        super().__init__(2, 2, **kwargs)
        self._bias = bias
        self._pays = [[pay(state, action, bias) for action in STATES] for state in STATES]
        self._best = {hears: best_partition(self._pays, NUM if hears else 1) for hears in (True, False)}
        self.interests = "mixed" if bias else "common"

    def phase(self, turn: int) -> tuple[Phase, Sequence[str]]:
        return "do" if turn else "say", self.possible_agents[turn : turn + 1]

    def facts(self, agent: str) -> str:
        return "" if self.possible_agents.index(agent) else f"goal {self.task}"

    def rules(self) -> tuple[str, str]:
        return _RULES.format(bias=self._bias), "a number from 0 to 7"

    def options(self, agent: str) -> Sequence[str]:
        return tuple(map(str, STATES))

    def num_lies(self, agent: str, message: str) -> int:
        named = said(message)
        return int(bool(named) and self.task not in named)

    def act(self, actions: Mapping[str, str]) -> Outcome:
        action = int(*actions.values())
        earned = dict(zip(self.possible_agents, self._pays[self.task][action], strict=True))
        return Outcome(earned, metrics={"agreed": float(action in said(self.said[self.possible_agents[0]]))})

    def truth(self) -> str:
        return f"goal {self.task}"

    def policy(self, agent: str, hears: bool) -> str:
        _, cells, actions = self._best[hears]
        if agent == self.possible_agents[0]:
            return " ".join(str(state) for cell in cells for state in cell if hears and self.task in cell)
        named = [state for _, message in self.heard[agent] for state in said(message) if hears]
        if not named:
            return str(*self._best[False].actions)
        return str(next(action for cell, action in zip(cells, actions, strict=True) if named[0] in cell))

    def partners(self) -> Mapping[str, Callable[[str], str]]:
        """Return strangers: advisers that add a number, and deciders that subtract it: 0, the bias or half of it."""
        added = {"honest": 0, "exaggerating": self._bias, "moderate-held-out": self._bias / 2}
        return {name: partial(self._literal, number) for name, number in added.items()}

    def _literal(self, added: float, agent: str) -> str:
        if agent == self.possible_agents[0]:
            return str(min(NUM - 1, round(self.task + added)))
        named = [state for _, message in self.heard[agent] for state in said(message)]
        return str(max(0, round(named[0] - added)) if named else NUM // 2)

    def ceilings(self) -> Mapping[str, float]:
        """Return exact mean rewards of both agents. "silent": the equilibrium in which the adviser says nothing."""
        best = sum(max(map(sum, pays)) for pays in self._pays) / NUM / 2
        return {"optimum": best, "equilibrium": self._best[True].value, "silent": self._best[False].value}


def said(message: str) -> list[int]:
    """Return the numbers of a message that are states."""
    return [int(word) for word in re.findall(r"\d+", message) if word in map(str, STATES)]


def pay(state: int, action: int, bias: float) -> tuple[float, float]:
    """Return the rewards of the adviser and of the decider."""
    return 1 - ((action - state - bias) / (NUM - 1 + bias)) ** 2, 1 - ((action - state) / (NUM - 1)) ** 2
