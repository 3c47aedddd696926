"""The environment MiniShift."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, get_args

from ...core import Message, Outcome
from ..mini_build import prompts as words
from ..mini_build.env import PartsEnv, task_number
from ..mini_build.rules import Site, Split, Verdict, joined, mean_pay, num_drawn, placed
from ..pictured import PicturedEnv, refuse_other
from ..pictures import PanelRow
from . import prompts as texts
from .rules import Offer, new_shift


class MiniShift(PartsEnv):
    """Two or more builders divide a new list of parts every turn, without seeing each other's moves.

    The list has one new (part, material) pair per builder; all builders read all pairs. Each builder names one part and
    one material. A part that several builders name is built once. The quality is the share of all listed parts that is
    built correctly. The maximum needs no memory, only a convention about places in the list.

    With feedback "cross", only the partners read the results of a builder's moves, so no agent's history shows the
    progress of the team. With "both", every history shows it.

    Args:
        split: "train" or "test"; no list of parts is in both.
        num_agents: builders, 2 to 8; a list has one part per builder.
        max_turns: turns of an episode.
        is_shuffled: True: each builder reads the list in its own random order, which prevents conventions about places.
        **kwargs: see `PartsEnv` and `TextParallelEnv`.

    Raises:
        ValueError: if a setting is invalid.
    """

    metadata: ClassVar[dict[str, Any]] = {**PicturedEnv.metadata, "name": "mini_shift_v0"}
    places = texts.PLACES
    _sites: tuple[Site, ...]  # goal and built parts of each earlier turn

    def __init__(
        self,
        split: Split = "train",
        *,
        num_agents: int = 2,
        max_turns: int = 8,
        threshold: float = 0.85,
        is_shuffled: bool = False,
        **kwargs: Any,
    ):
        super().__init__(num_agents, max_turns, threshold=threshold, **kwargs)
        refuse_other("split", split, get_args(Split))
        self.split: Split = split
        self._is_shuffled = is_shuffled
        self._start(0)

    @property
    def offer(self) -> Offer:
        """List of parts of the current turn. After the last turn, it is the last list."""
        return self._offers[min(self.turn, self.max_turns - 1)]

    def deal(self, task: Any) -> Mapping[str, Sequence[Message]]:
        self._start(self.rng.randrange(2**31) if task is None else task_number(task))
        return self.openings(texts.prompt, "offer", self.offer.lists, is_shuffled=self._is_shuffled)

    def play(self, replies: Mapping[str, str]) -> Outcome:
        before = self._num_right
        site = Site(self.offer.pairs)
        found: dict[str, Verdict] = {}
        for agent in self.rng.sample(self.possible_agents, len(self.possible_agents)):
            site, found[agent] = placed(site, words.parsed_move(replies[agent]))
        counts = Counter(found.values())
        self._num_right += counts["ok"]
        self._sites = (*self._sites, site)
        self._verdicts = tuple(found[agent] for agent in self.possible_agents)
        is_last = self.turn + 1 == self.max_turns
        after, gain = self._num_right / self._num_pairs, (self._num_right - before) / self._num_pairs
        feedback = {}
        for seat, agent in enumerate(self.possible_agents):
            partners = [*self._verdicts[:seat], *self._verdicts[seat + 1 :]]
            next_pairs = None if is_last else self._offers[self.turn + 1].lists[seat]
            feedback[agent] = texts.told(self._feedback, found[agent], partners, next_pairs)
        return self.judged(after, gain, feedback, counts)

    def panels(self) -> list[PanelRow]:
        return self.compared([*self._sites, *(Site(offer.pairs) for offer in self._offers[len(self._sites) :])])

    def truth(self) -> str:
        return texts.truth_text(self._num_right, self._num_pairs, self._verdicts)

    def reference(self, agent: str) -> str:
        """Return the pair at the agent's own place in the unshuffled list."""
        return words.reply(self.offer.pairs[self.possible_agents.index(agent)])

    def exploits(self) -> Mapping[str, Callable[[str], str]]:
        return {
            "first of the list": lambda agent: words.reply(self.offer.pairs[0]),
            "the whole list": lambda agent: words.goal_text(self.offer.pairs),
        }

    def ceilings(self) -> Mapping[str, float]:
        team, turns = len(self.possible_agents), self.max_turns
        of_turn = num_drawn(team, team)
        by_lot = [0.0] * (self._num_pairs + 1)
        for num_right, chance in enumerate(of_turn):
            by_lot[num_right * turns] = chance

        def pay(chances: Sequence[float]) -> float:
            return mean_pay(self._reward, chances, threshold=self._threshold)

        return {
            "no memory: each takes its own part of every list": 1.0,
            "no convention: each samples a part of every list": pay(joined([of_turn] * turns)),
            "no convention, but memory: each samples a place once and keeps it": pay(by_lot),
        }

    def _start(self, number: int) -> None:
        self._offers = new_shift(
            number,
            num_builders=len(self.possible_agents),
            num_turns=self.max_turns,
            split=self.split,
            is_shuffled=self._is_shuffled,
        )
        self._num_pairs = len(self._offers) * len(self.possible_agents)
        self._num_right = 0
        self._sites = ()
        self._verdicts = ()
        self.task = tuple(offer.pairs for offer in self._offers)
