"""The environment MatrixGame: repeated games of two agents and two actions, with announcements."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from random import Random
from typing import Any, ClassVar, Literal, get_args

from ...core import Outcome
from ..mini_build.rules import MATERIALS
from ..pictured import refuse_count, refuse_other
from .core import Phase, TalkEnv, spoken
from .solutions import Table, best_nash
from .strategies import STRANGERS, Strategy, grim

Game = Literal["prisoner", "stag", "chicken", "sexes", "pennies", "coordination"]
CELLS = (0, 0), (0, 1), (1, 0), (1, 1)
_TABLES: Mapping[Game, tuple[tuple[int, int], ...]] = {
    "prisoner": ((5, 5), (0, 10), (10, 0), (1, 1)),
    "stag": ((2, 2), (0, 1), (1, 0), (1, 1)),
    "chicken": ((0, 0), (4, 1), (1, 4), (3, 3)),
    "sexes": ((3, 2), (0, 0), (0, 0), (2, 3)),
    "pennies": ((1, 0), (0, 1), (0, 1), (1, 0)),
    "coordination": ((1, 1), (0, 0), (0, 0), (1, 1)),
}
_RULES = """\
Two builders play {} rounds. In each round, both choose one of two words at the same time. After "goal" follow the \
payoffs: your word, the word of the other builder, your payoff, the payoff of the other builder. After "recorded" \
follow the words of a round."""


class MatrixGame(TalkEnv):
    """Two agents play a game of two actions for some rounds, and announce their actions before each round.

    Each agent is paid by both actions; announcements do not bind. The reward of a round is the payoff divided by the
    highest payoff and the number of rounds. The prompt has the payoffs, and after each round, both agents read both
    actions. The payoffs are those of OpenSpiel, with matching pennies scaled to 0 and 1.

    The reference players play the pair of actions with the highest sum, in turn if there are several. After a
    deviation, they play the safest action to the end. In "pennies", they play at random.

    Args:
        game: "prisoner", "stag", "chicken", "sexes", "pennies" (opposed interests), "coordination" (common interests).
        num_rounds: rounds of an episode.
        num_messages: announcements per round. 0: no talk.
        is_shuffled: True: in each episode, each agent has other words for its actions, and its own list of payoffs.
        **kwargs: see `TalkEnv`.
    """

    metadata: ClassVar[dict[str, Any]] = {**TalkEnv.metadata, "name": "matrix_game_v0"}

    def __init__(
        self, game: Game = "stag", num_rounds: int = 1, num_messages: int = 1, is_shuffled: bool = True, **kwargs: Any
    ):
        refuse_other("game", game, get_args(Game))
        refuse_count("num_rounds", num_rounds, 1, 100)
        refuse_count("num_messages", num_messages, 0, 100)
        super().__init__(2, num_rounds * (num_messages + 1), **kwargs)
        self._table: Table = dict(zip(CELLS, _TABLES[game], strict=True))
        self._top = max(map(max, self._table.values()))
        self.interests = "common" if game == "coordination" else "opposed" if game == "pennies" else "mixed"
        self._num_rounds, self._period, self._is_shuffled = num_rounds, num_messages + 1, is_shuffled

    @property
    def num_deals(self) -> int:
        return self.num_tasks if self._is_shuffled else 1

    def phase(self, turn: int) -> tuple[Phase, Sequence[str]]:
        return "do" if (turn + 1) % self._period == 0 else "say", self.possible_agents

    def begin(self, task: int) -> None:
        rng = Random(task)
        words = rng.sample(MATERIALS, 4) if self._is_shuffled else [*MATERIALS[:2]] * 2
        self._words = dict(zip(self.possible_agents, (words[:2], words[2:]), strict=True))  # a word per action
        self._cells = {agent: rng.sample(CELLS, 4) if self._is_shuffled else CELLS for agent in self.possible_agents}
        self._played: list[tuple[int, int]] = []

    def facts(self, agent: str) -> str:
        order = 1 if agent == self.possible_agents[0] else -1
        words = list(self._words.values())
        rows = []
        for cell in self._cells[agent]:
            rows += [words[seat][action] for seat, action in enumerate(cell)][::order]
            rows += [str(pay) for pay in self._table[cell]][::order]
        return " ".join(["goal", *rows])

    def rules(self) -> tuple[str, str]:
        return _RULES.format(self._num_rounds), "one of your words"

    def options(self, agent: str) -> Sequence[str]:
        return self._words[agent]

    def act(self, actions: Mapping[str, str]) -> Outcome:
        row, column = (self._words[agent].index(word) for agent, word in actions.items())
        broken = sum(self.named(agent, self.said.get(agent, "")) not in (None, word) for agent, word in actions.items())
        self._played.append((row, column))
        scale = self._num_rounds * self._top
        earned = {agent: pay / scale for agent, pay in zip(actions, self._table[row, column], strict=True)}
        line = " ".join(["recorded", *(f"{spoken(agent)} {word}" for agent, word in actions.items())])
        metrics = {"agreed": float(row == column), "lies": broken}
        return Outcome(earned, feedback=dict.fromkeys(actions, line), metrics=metrics)

    def truth(self) -> str:
        return " ".join(word for words in self._words.values() for word in words)

    def policy(self, agent: str, hears: bool) -> str:
        return self._planned(grim, agent) if hears or self.phase(self.turn)[0] == "do" else ""

    def partners(self) -> Mapping[str, Callable[[str], str]]:
        return {name: partial(self._planned, strategy) for name, strategy in STRANGERS.items()}

    def _planned(self, strategy: Strategy, agent: str) -> str:
        """Return the word of a strategy's action, which is also its announcement."""
        seat = self.possible_agents.index(agent)
        if self.interests == "opposed":
            return self._words[agent][Random(f"{self.task} {agent} {len(self._played)}").randrange(2)]
        return self._words[agent][strategy(self._table, self._played, seat)]

    def honest_players(self) -> Mapping[str, Callable[[str], str]]:
        return {}  # nothing is hidden, so that the silent player would be as good as the talking player

    def ceilings(self) -> Mapping[str, float]:
        """Return exact mean returns of both agents. Nothing is hidden, so that the optimum needs no messages.

        "equilibrium of one round": the best Nash equilibrium of a game of one round. More rounds can have better ones.
        """
        best = max(map(sum, self._table.values())) / 2 / self._top
        return {"optimum": best, "equilibrium of one round": best_nash(self._table) / self._top, "silent": best}
