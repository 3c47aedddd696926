"""The environment ResourceGathering."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, get_args

from ...core import Outcome
from ..fog import Feedback, with_score
from ..pictured import TaskEnv, Variant, refuse_other, with_published
from ..pictures import PanelRow
from ..sources import GENERATED, Data, Difficulty, Split, source_of, tasks_of_split
from . import prompts as texts
from .generator import HIGHEST_DIFFICULTY, new_land
from .players import EXPLOITS, Exploit, honest_reply
from .rules import Land, Reward, Settings, after, beginning, is_completed, progress, visible

PUBLISHED = {"reward": "reference", "view": 2, "reach": 2, "memory": "none"}
"""Defaults of the published configurations, if they differ from the defaults of this package."""
_KINDS = ".wsib12?"
_COLOURS = (
    *((205, 225, 185), (105, 70, 35), (140, 140, 140), (215, 150, 110), (175, 145, 125)),
    *((40, 60, 200), (130, 40, 180), (90, 95, 105)),
)


class ResourceGathering(TaskEnv[Land]):
    """One gatherer takes wood, the other stone and iron; each starts among its partner's resources.

    At the end of a walk, a gatherer takes everything within reach that fits its tools. It sees the surroundings of all
    cells that it has visited. It may send its partner one fact per turn; false facts are not sent. On generated maps,
    only the partner sees a gatherer's resources at first. The episode ends when the goal is reached.

    The reference player sends facts and uses only an agent's observations.

    Args:
        split: "train" or "test", or "all" if `data` is not "generated".
        data: "generated" (random maps), "builtin" (ten maps in the package), or a file or hub name with the columns
            "task_id", "goal" and "rows".
        variant: "ours", or "published" for the defaults of the published configurations: `reward` "reference",
            `view` 2, `reach` 2, `memory` "none".
        difficulty: difficulty of generated maps, 1 to 5, or a range such as "2-4".
        max_turns: turns of an episode.
        reward: "bounded": 10 for progress, 4 for completion, and small bonuses for walking to needed resources and for
            useful facts. "reference": as published; walking away costs nothing. "progress": progress and completion.
        feedback: "none" (only the visible cells) or "score" (also the reward of the turn).
        view: number of cells that a gatherer sees in each direction.
        reach: distance within which a gatherer takes resources, as the sum of the distances along x and z.
        max_steps: maximum number of steps per walk.
        max_facts: maximum number of facts that a gatherer may send per turn.
        **kwargs: see `TaskEnv` and `TextParallelEnv`.

    Raises:
        ValueError: if a setting is invalid.
    """

    metadata: ClassVar[dict[str, Any]] = {**TaskEnv.metadata, "name": "resource_gathering_v2"}
    truth_metric: ClassVar[str | None] = "progress"
    block_letters = _KINDS
    block_colours = _COLOURS

    own_prompt = texts.PROMPT
    needed_place = "state"

    @with_published(PUBLISHED)
    def __init__(
        self,
        split: Split = "train",
        *,
        data: Data = GENERATED,
        variant: Variant = "ours",
        difficulty: Difficulty = 3,
        max_turns: int = 4,
        reward: Reward = "bounded",
        feedback: Feedback = "none",
        view: int = 3,
        reach: int = 1,
        max_steps: int = 4,
        max_facts: int = 1,
        **kwargs: Any,
    ):
        refuse_other("reward", reward, get_args(Reward))
        refuse_other("feedback", feedback, get_args(Feedback))
        if min(view, reach, max_steps, max_facts) < 0:
            raise ValueError(
                f"view, reach, max_steps and max_facts must not be negative, got {view}, {reach}, {max_steps} and "
                f"{max_facts}"
            )
        self._settings = Settings(view, reach, max_steps, max_facts)  # `lay_out` needs it in the base class's __init__
        source = source_of(data, split, difficulty, highest=HIGHEST_DIFFICULTY, listed=lands, new=new_land)
        super().__init__(("gatherer_0", "gatherer_1"), max_turns, source, **kwargs)
        self._reward, self._feedback = reward, feedback

    def lay_out(self) -> None:
        self._state = beginning(self.task, self._settings)

    def start(self) -> Mapping[str, Mapping[str, str | int]]:
        return {
            agent: texts.fields(self.task, self._state, i, settings=self._settings, turns=self.max_turns)
            for i, agent in enumerate(self.possible_agents)
        }

    def turned(self, replies: Mapping[str, str]) -> Outcome:
        actions = [
            texts.parsed_action(replies[agent], self.task, self._state, i, self._settings)
            for i, agent in enumerate(self.possible_agents)
        ]
        facts = [told for _, told in actions]
        self._state, score = after(self.task, self._state, [path for path, _ in actions], facts, self._settings)
        terms = score.terms(self._reward)
        value = sum(terms.values())
        return Outcome(
            value,
            feedback={
                agent: with_score(
                    texts.state_text(self.task, self._state, i, settings=self._settings, told=facts[1 - i]),
                    value,
                    self._feedback,
                )
                for i, agent in enumerate(self.possible_agents)
            },
            terms=terms,
            metrics={
                "score": score.published,
                "progress": progress(self.task, self._state),
                "success": float(is_completed(self.task, self._state)),
                "facts": float(sum(map(len, facts))),
            },
            is_over=is_completed(self.task, self._state),
        )

    def panels(self) -> list[PanelRow]:
        seen = [visible(self.task, self._state, i, self._settings) for i in (0, 1)]
        return [
            PanelRow("MAP", [self._layer(frozenset(self.task.cells))]),
            PanelRow("SEEN BY 1 AND 2", [self._layer(cells) for cells in seen]),
        ]

    def truth(self) -> str:
        return texts.truth_text(self._state)

    def reference(self, agent: str) -> str:
        """Return the reply of a player that sends facts. Two such players complete every generated map."""
        return self._honest_reply(agent, is_talking=True)

    def honest_players(self) -> Mapping[str, Callable[[str], str]]:
        return {
            "silent": partial(self._honest_reply, is_talking=False),
            "talking": partial(self._honest_reply, is_talking=True),
        }

    def exploits(self) -> Mapping[str, Callable[[str], str]]:
        return {name: partial(self._exploiting_reply, player) for name, player in EXPLOITS.items()}

    def _honest_reply(self, agent: str, *, is_talking: bool) -> str:
        gatherer = self.possible_agents.index(agent)
        return honest_reply(self.task, self._state, gatherer, self._settings, turn=self.turn, is_talking=is_talking)

    def _exploiting_reply(self, player: Exploit, agent: str) -> str:
        return player(self.task, self._state, self.possible_agents.index(agent), self._settings, self.turn)

    def _layer(self, seen: frozenset[tuple[int, int]]) -> list[list[int]]:
        layer = [[_KINDS.index("?")] * self.task.width for _ in range(self.task.depth)]
        for x, z in seen:
            wood, stone, iron = self._state.lies.get((x, z), (0, 0, 0))
            kind = "w" if wood else "b" if stone and iron else "s" if stone else "i" if iron else "."
            layer[z][x] = _KINDS.index(kind)
        for number, place in zip("12", self._state.places, strict=True):
            if place in seen:
                layer[place[1]][place[0]] = _KINDS.index(number)
        return layer


def lands(data: Data, split: Split) -> list[Land]:
    """Load the maps (lands) of a file, a hub name, or the package's sample ("builtin")."""
    sample = Path(__file__).parent / "sample.json"
    columns = {"text_fields": ("task_id",), "other_fields": ("goal", "rows")}
    return tasks_of_split(data, split, lambda row, _: texts.land(row), sample, **columns)
