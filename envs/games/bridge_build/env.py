"""BridgeBuild: two workers in the fog bridge a water from both banks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, get_args

from ...core import Outcome
from ..fog import Feedback
from ..pictured import TaskEnv
from ..pictures import Row
from ..settings import refuse_other
from ..sources import GENERATED, Data, Split, rows_of_split, source_of
from . import exploits, prompts
from .generator import HIGHEST_DIFFICULTY, new_bridge
from .rules import Bridge, after, beginning, missing

_SAMPLE = Path(__file__).parent / "sample.json"
_KINDS = ".#STYN=12?P"
_COLOURS = (
    *((190, 220, 245), (120, 160, 90), (240, 170, 40), (240, 120, 40), (60, 140, 70), (180, 50, 50)),
    *((176, 137, 84), (40, 60, 200), (130, 40, 180), (90, 95, 105), (225, 205, 90)),
)


class BridgeBuild(TaskEnv[Bridge]):
    """Two workers join S and T with planks, without seeing the whole map, nor which pillars are true.

    A worker sees the surroundings of where it has been, learns a pillar's kind by probing, and can tell its partner.
    Every turn costs; the episode ends when S and T are joined.

    Args:
        split: "train" or "test"; or "all", of data that is a list.
        data: "generated" (maps of some `difficulty`), "builtin" (ten maps in the package), or a file or hub name with
            the columns "task_id" and "map", a list of rows.
        difficulty: how hard generated maps are, 1 to 5.
        max_turns: turns of an episode.
        view: cells that a worker sees in each direction.
        max_steps: steps of a worker's walk per turn; None: as many as it likes, as published.
        max_probes: cells a worker may probe per turn.
        feedback: "none" (only what can be seen) or "score" (the turn's reward too).
        **kwargs: of `TextParallelEnv`.

    Raises:
        ValueError: if a setting is none of the above.
    """

    metadata: ClassVar[dict[str, Any]] = {**TaskEnv.metadata, "name": "bridge_build_v0"}
    allowed_exploits: ClassVar[Mapping[str, str]] = {
        "one does all": "a worker's planks reach both banks, so that one who knows the map needs no partner",
        "repeat the partner": "the same planks twice are the planks of one who knows the map",
    }
    block_letters = _KINDS
    block_colours = _COLOURS

    def __init__(
        self,
        split: Split = "train",
        *,
        data: Data = GENERATED,
        difficulty: int = 3,
        max_turns: int = 4,
        view: int = 3,
        max_steps: int | None = 6,
        max_probes: int = 2,
        feedback: Feedback = "none",
        **kwargs: Any,
    ):
        source = source_of(data, split, difficulty, highest=HIGHEST_DIFFICULTY, listed=bridges, new=new_bridge)
        super().__init__(("worker_0", "worker_1"), max_turns, source, **kwargs)
        refuse_other("feedback", feedback, get_args(Feedback))
        wrong = {"view": view, "max_steps": max_steps or 0, "max_probes": max_probes}
        if min(wrong.values()) < 0:
            raise ValueError(f"view, max_steps and max_probes must not be negative, got {wrong}")
        self._view = view
        self._max_steps = max_steps
        self._max_probes = max_probes
        self._feedback: Feedback = feedback

    def lay_out(self) -> None:
        self._state = beginning(self.task)

    def start(self) -> Mapping[str, str]:
        return {
            agent: prompts.prompt(
                self.task,
                self._state,
                worker,
                view=self._view,
                turns=self.max_turns,
                max_probes=self._max_probes,
                max_steps=self._max_steps,
            )
            for worker, agent in enumerate(self.possible_agents)
        }

    def play(self, replies: Mapping[str, str]) -> Outcome:
        parsed = [
            prompts.parsed_action(
                replies[agent],
                self.task,
                self._state.places[worker],
                max_probes=self._max_probes,
                max_steps=self._max_steps,
            )
            for worker, agent in enumerate(self.possible_agents)
        ]
        actions = [acted for acted, _ in parsed]
        said = [text for _, text in parsed]
        self._state, score = after(self.task, self._state, actions)
        return Outcome(
            score.published,
            feedback={
                agent: prompts.feedback(
                    self.task,
                    self._state,
                    worker,
                    view=self._view,
                    heard=said[1 - worker],
                    score=score,
                    mode=self._feedback,
                )
                for worker, agent in enumerate(self.possible_agents)
            },
            terms={
                "false_pillars": 0.0 - score.num_false_touched,
                "true_pillars": 0.0 - 2.0 * score.num_true_untouched,
                "apart": 0.0 - 5.0 * (not score.is_connected),
                "probes": 0.0 - 0.3 * score.num_probes,
                "messages": 0.0 - 0.001 * score.num_words,
            },
            metrics={
                "connected": float(score.is_connected),
                "planks": float(self._state.world.sum()),
                "rejected": float(sum(action.num_rejected for action in actions)),
            },
            is_over=score.is_connected,
        )

    def panels(self) -> list[Row]:
        known = []
        for worker in (0, 1):
            rows = [list(row) for row in prompts.fogged_rows(self.task, self._state, worker, self._view)]
            x, z = self._state.places[worker]
            rows[z][x] = str(worker + 1)
            known.append(_numbers(rows))
        whole = _numbers(prompts.picture_rows(self.task, self._state))
        return [Row("MAP", [whole]), Row("KNOWN TO 1 AND 2", known)]

    def reference_reply(self, agent: str) -> str:
        """The commands with which two reference workers, who know the map, join S and T at no cost, in one turn."""
        worker = self.possible_agents.index(agent)
        return prompts.reply(missing(self.task, self._state, worker), self._state.places[worker])

    def exploits(self) -> Mapping[str, Callable[[str], str]]:
        """A team that floods the map with planks."""
        return {"flood every row": lambda agent: exploits.flood(self.task, self.possible_agents.index(agent))}


def bridges(data: Data, split: Split) -> list[Bridge]:
    """The maps of a file, a hub name, or the package's sample ("builtin")."""
    rows = rows_of_split(data, split, builtin=_SAMPLE, text_fields=("task_id",), other_fields=("map",))
    return [Bridge(row["task_id"], tuple(str(line) for line in row["map"])) for _, row in rows]


def _numbers(rows: Sequence[Sequence[str]]) -> list[list[int]]:
    return [[_KINDS.index(kind) for kind in row] for row in rows]
