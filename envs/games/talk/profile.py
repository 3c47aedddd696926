"""The environment Profile: every agent holds some of the clues that exclude all wrong options."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from random import Random
from typing import Any, ClassVar, Literal, get_args

from ...core import Outcome
from ..mini_build.rules import PARTS
from ..pictured import refuse_count, refuse_other
from .core import Phase, TalkEnv
from .solutions import mean_chance

Links = Literal["all", "ring", "line", "star"]
NO = "no"
_RULES = """\
{} builders look for the right one of {} options, which follow the word "goal". Each builder knows other wrong \
options, as in "no wall". In {} turns, all write a message at the same time, which {linked} read. Then all name an \
option; the reward is the share of right ones."""
_LINKED: Mapping[Links, str] = {
    "all": "all others",
    "ring": "the builders with the next numbers (in a ring)",
    "line": "the builders with the next numbers",
    "star": "builder 0 and, of its messages, all others",
}


class Profile(TalkEnv):
    """Agents hold different clues, exchange messages with their neighbours, and then name one of the options.

    One option is right. A clue excludes a wrong option; the clues are dealt in turn, each to one agent. After all
    messages, every agent names an option. The team's reward is the share of agents that name the right one. This is
    the hidden profile task (Stasser and Titus, 1985) without shared clues.

    Args:
        num_agents: 2 to 8.
        num_options: 2 to 24.
        num_messages: say turns before the last turn. Information passes one link per say turn.
        links: pairs of agents that read each other's messages: "all", "ring", "line", or "star" (builder_0 and others).
        **kwargs: see `TalkEnv`.
    """

    metadata: ClassVar[dict[str, Any]] = {**TalkEnv.metadata, "name": "profile_v0"}

    def __init__(
        self, *, num_agents: int = 3, num_options: int = 4, num_messages: int = 1, links: Links = "all", **kwargs: Any
    ):
        refuse_count("num_agents", num_agents, 2, 8)
        refuse_count("num_options", num_options, 2, len(PARTS))
        refuse_count("num_messages", num_messages, 0, 100)
        refuse_other("links", links, get_args(Links))
        super().__init__(num_agents, num_messages + 1, **kwargs)
        self._num_options, self._links = num_options, links

    def phase(self, turn: int) -> tuple[Phase, Sequence[str]]:
        return "do" if turn + 1 == self.max_turns else "say", self.possible_agents

    def begin(self, task: int) -> None:
        rng = Random(task)
        self._answer, *wrong = rng.sample(PARTS, self._num_options)
        team = self.possible_agents
        self._clues = {agent: wrong[seat :: len(team)] for seat, agent in enumerate(team)}
        # The options, in the order in which the agent reads them.
        self._lists = {agent: rng.sample([self._answer, *wrong], self._num_options) for agent in team}

    def facts(self, agent: str) -> str:
        return " ".join(["goal", *self._lists[agent], *(word for clue in self._clues[agent] for word in (NO, clue))])

    def rules(self) -> tuple[str, str]:
        count = len(self.possible_agents), self._num_options, self.max_turns - 1
        return _RULES.format(*count, linked=_LINKED[self._links]), "one option"

    def options(self, agent: str) -> Sequence[str]:
        return self._lists[agent]

    def listeners(self, agent: str) -> Collection[str]:
        return [other for other in self.possible_agents if self.distance(agent, other) == 1]

    def distance(self, agent: str, other: str) -> int:
        """Return the number of say turns after which an agent's information can have reached another agent."""
        seats, size = [self.possible_agents.index(each) for each in (agent, other)], len(self.possible_agents)
        gap = abs(seats[0] - seats[1])
        far = {"all": 1, "ring": min(gap, size - gap), "line": gap, "star": 1 if 0 in seats else 2}
        return far[self._links] if gap else 0

    def num_lies(self, agent: str, message: str) -> int:
        return len(set(self._excluded(agent, message)) - set(self.known(agent)))

    def known(self, agent: str, hears: bool = True) -> list[str]:
        """Return the options that an agent's clues exclude and, if `hears`, that messages exclude."""
        said = [word for _, message in self.heard[agent] for word in self._excluded(agent, message)]
        return list(dict.fromkeys([*self._clues[agent], *(said if hears else [])]))

    def _excluded(self, agent: str, message: str) -> list[str]:
        first, *words = message.lower().split() or [""]
        return [word for word in words if first == NO and word in self._lists[agent]]

    def act(self, actions: Mapping[str, str]) -> Outcome:
        right = sum(word == self._answer for word in actions.values()) / len(actions)
        agreed = float(len(set(actions.values())) == 1)
        return Outcome(right, terms={"right": right}, metrics={"agreed": agreed, "right": right})

    def truth(self) -> str:
        return self._answer

    def policy(self, agent: str, hears: bool) -> str:
        known = self.known(agent, hears)
        if self.phase(self.turn)[0] == "say":
            return " ".join([NO, *known[1 - self._max_words :]]) if hears and known and self._max_words > 1 else ""
        left = [option for option in self._lists[agent] if option not in known]
        return (left or self._lists[agent])[0]

    def partners(self) -> Mapping[str, Callable[[str], str]]:
        """Return strangers that send their clues, their last clue only, or their clues in the opposite order."""
        chosen = {"all": slice(None), "brief": slice(-1, None), "reversed-held-out": slice(None, None, -1)}
        return {name: partial(self._chosen, clues) for name, clues in chosen.items()}

    def _chosen(self, clues: slice, agent: str) -> str:
        words = self.policy(agent, True).split()
        return " ".join([*words[:1], *words[1:][clues]])

    def ceilings(self) -> Mapping[str, float]:
        """Return exact mean rewards. "strangers": messages can hold all clues, and need no convention."""
        team = self.possible_agents
        distances = [[self.distance(agent, other) for other in team] for agent in team]
        best, silent = (mean_chance(self._num_options, distances, count) for count in (self.max_turns - 1, 0))
        found = {"optimum": best, "silent": silent}
        return found if self._max_words < self._num_options else found | {"strangers": best}
