"""The environment BridgeBuild."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

from ...core import Outcome
from ..blocks import Box
from ..fog import Feedback, with_score
from ..pictured import TaskEnv, Variant, refuse_other, with_published
from ..pictures import PanelRow
from ..sources import GENERATED, Data, Difficulty, Split, source_of, tasks_of_split
from . import prompts as texts
from .players import EXPLOITS, Exploit, View, honest_reply
from .rules import HIGHEST_DIFFICULTY, Bridge, BridgeScore, after, beginning, missing, missing_on_side, new_bridge

Reach = Literal["far", "side", "map"]

PUBLISHED = {"reward": "reference", "reach": "map", "view": 3, "max_steps": None, "max_probes": 2, "memory": "none"}
"""Defaults of the published configurations, if they differ from the defaults of this package."""
_KINDS = ".#STYN=12?P"
_COLOURS = (
    *((190, 220, 245), (120, 160, 90), (240, 170, 40), (240, 120, 40), (60, 140, 70), (180, 50, 50)),
    *((176, 137, 84), (40, 60, 200), (130, 40, 180), (90, 95, 105), (225, 205, 90)),
)


class BridgeBuild(TaskEnv[Bridge]):
    """Two workers join S and T on a map with planks. They see only a part of the map and must probe the pillars.

    A worker sees the surroundings of all cells that it has visited, can probe whether a pillar is true or false, and
    can send messages to its partner. It can lay planks only on the far half of the map, which at first only its partner
    sees. The episode ends when S and T are joined.

    With `reach` "far", the reference player sends messages and uses only an agent's observations. With "side" and
    "map", it uses the whole map.

    Args:
        split: "train" or "test", or "all" if `data` is not "generated".
        data: "generated" (random maps), "builtin" (ten maps in the package), or a file or hub name with the columns
            "task_id" and "map", a list of rows.
        variant: "ours", or "published" for the defaults of the published configurations: `reward` "reference",
            `reach` "map", `view` 3, `max_steps` None, `max_probes` 2, `memory` "none".
        difficulty: difficulty of generated maps, 1 to 5, or a range such as "2-4".
        max_turns: turns of an episode.
        reward: "priced": points for joining S and T and for true pillars with a plank, minus points for planks and for
            false pillars; each counts once. "reference": as published, at most 0 in every turn, and planks are free.
        reach: part of the map in which a worker can lay planks: "far" (the half in which its partner begins), "side"
            (the half in which it begins) or "map" (everywhere, as published).
        view: number of cells that a worker sees in each direction.
        max_steps: steps per walk. None: no limit, as published.
        max_probes: probes per turn and worker.
        feedback: "none" (only the visible cells) or "score" (also the reward of the turn).
        **kwargs: see `TaskEnv` and `TextParallelEnv`.

    Raises:
        ValueError: if a setting is invalid.
    """

    metadata: ClassVar[dict[str, Any]] = {**TaskEnv.metadata, "name": "bridge_build_v2"}
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
        reward: texts.Reward = "priced",
        reach: Reach = "far",
        view: int = 5,
        max_steps: int | None = 1,
        max_probes: int = 6,
        feedback: Feedback = "none",
        **kwargs: Any,
    ):
        source = source_of(data, split, difficulty, highest=HIGHEST_DIFFICULTY, listed=bridges, new=new_bridge)
        super().__init__(("worker_0", "worker_1"), max_turns, source, **kwargs)
        refuse_other("reward", reward, get_args(texts.Reward))
        refuse_other("reach", reach, get_args(Reach))
        refuse_other("feedback", feedback, get_args(Feedback))
        wrong = {"view": view, "max_steps": max_steps or 0, "max_probes": max_probes}
        if min(wrong.values()) < 0:
            raise ValueError(f"view, max_steps and max_probes must not be negative, got {wrong}")
        self._view, self._max_steps, self._max_probes = view, max_steps, max_probes
        self._reward, self._reach, self._feedback = reward, reach, feedback

    def lay_out(self) -> None:
        self._state = beginning(self.task)
        self._said: tuple[list[str], list[str]] = ([], [])

    def start(self) -> Mapping[str, Mapping[str, str | int]]:
        return {
            agent: texts.fields(
                self.task,
                self._state,
                worker,
                view=self._view,
                turns=self.max_turns,
                max_probes=self._max_probes,
                max_steps=self._max_steps,
                reward=self._reward,
                reached=self._reached,
            )
            for worker, agent in enumerate(self.possible_agents)
        }

    def turned(self, replies: Mapping[str, str]) -> Outcome:
        parsed = [
            texts.parsed_action(replies[agent], self.task, place, reached, self._max_probes, self._max_steps)
            for agent, place, reached in zip(self.possible_agents, self._state.places, self._reached, strict=True)
        ]
        actions = [acted for acted, _ in parsed]
        said = [text for _, text in parsed]
        self._said = ([*self._said[0], said[0]], [*self._said[1], said[1]])
        self._state, score = after(self.task, self._state, actions)
        value = score.priced if self._reward == "priced" else score.published
        return Outcome(
            value,
            feedback={
                agent: with_score(
                    texts.state_text(self.task, self._state, worker, view=self._view, heard=said[1 - worker]),
                    value,
                    self._feedback,
                )
                for worker, agent in enumerate(self.possible_agents)
            },
            terms=_terms(self._reward, score),
            metrics={
                "score": score.published,
                "connected": float(score.is_connected),
                "success": float(score.is_connected and not score.num_false_touched + score.num_true_untouched),
                "planks": float(self._state.world.sum()),
                "rejected": float(sum(action.num_rejected for action in actions)),
            },
            is_over=score.is_connected,
        )

    def panels(self) -> list[PanelRow]:
        seen = [texts.fogged_rows(self.task, self._state, worker, self._view) for worker in (0, 1)]
        whole = self._layer(texts.whole_map(self.task, self._state), (0, 1))
        known = [self._layer(rows, (worker,)) for worker, rows in enumerate(seen)]
        return [PanelRow("MAP", [whole]), PanelRow("KNOWN TO 1 AND 2", known)]

    def truth(self) -> str:
        return texts.truth_text(self.task, self._state)

    def reference(self, agent: str) -> str:
        """Return the reference player's reply. If `reach` is not "far", the player uses the whole map."""
        return (
            honest_reply(self._view_of(agent), is_talking=True) if self._reach == "far" else self.knowing_reply(agent)
        )

    def knowing_reply(self, agent: str) -> str:
        """Return the commands of a worker that sees the whole map. Two such workers join S and T in one turn."""
        worker = self.possible_agents.index(agent)
        if self._reach == "map":
            fills = missing(self.task, self._state, worker)
        else:
            fills = missing_on_side(self.task, self._state, worker if self._reach == "side" else 1 - worker)
        return texts.reply(fills, self._state.places[worker])

    def honest_players(self) -> Mapping[str, Callable[[str], str]]:
        return {
            "silent": partial(self._reply, partial(honest_reply, is_talking=False)),
            "talking": partial(self._reply, partial(honest_reply, is_talking=True)),
        }

    def exploits(self) -> Mapping[str, Callable[[str], str]]:
        return {name: partial(self._reply, player) for name, player in EXPLOITS.items()}

    def _reply(self, player: Exploit, agent: str) -> str:
        return player(self._view_of(agent))

    def _layer(self, rows: Sequence[Sequence[str]], workers: Sequence[int]) -> list[list[int]]:
        layer = [[_KINDS.index(kind) for kind in row] for row in rows]
        for worker in workers:
            x, z = self._state.places[worker]
            layer[z][x] = _KINDS.index(str(worker + 1))
        return layer

    def _view_of(self, agent: str) -> View:
        worker = self.possible_agents.index(agent)
        return View(
            rows=texts.fogged_rows(self.task, self._state, worker, self._view),
            start=min(self.task.cells("S")),
            end=min(self.task.cells("T")),
            place=self._state.places[worker],
            own=self._reached[worker],
            partners=self._reached[1 - worker],
            told=self._said[worker],
            heard=self._said[1 - worker],
            turns_left=self.max_turns - self.turn,
            view=self._view,
            max_steps=self._max_steps,
            max_probes=self._max_probes,
        )

    @property
    def _reached(self) -> tuple[Box, Box]:
        first, second = self.task.sides
        return {"far": (second, first), "side": (first, second), "map": (self.task.box, self.task.box)}[self._reach]


def _terms(reward: texts.Reward, score: BridgeScore) -> dict[str, float]:
    """Return the named terms of a turn's reward. The sum of the terms is the reward."""
    told = {"probes": 0.0 - 0.3 * score.num_probes, "messages": 0.0 - 0.001 * score.num_words}
    if reward == "priced":
        return {
            "true_pillars": 5.0 * score.num_true_new,
            "false_pillars": 0.0 - 8.0 * score.num_false_new,
            "joined": 10.0 * score.has_joined,
            "planks": 0.0 - 5.0 * score.share_laid,
            **told,
        }
    return {
        "false_pillars": 0.0 - score.num_false_touched,
        "true_pillars": 0.0 - 2.0 * score.num_true_untouched,
        "apart": 0.0 - 5.0 * (not score.is_connected),
        **told,
    }


def bridges(data: Data, split: Split) -> list[Bridge]:
    """Load the maps of a file, a hub name, or the package's sample ("builtin")."""
    sample = Path(__file__).parent / "sample.json"
    return tasks_of_split(data, split, _bridge, sample, text_fields=("task_id",), other_fields=("map",))


def _bridge(row: Mapping[str, Any], number: int) -> Bridge:
    rows = row["map"]
    if not isinstance(rows, list) or not all(isinstance(line, str) for line in rows):
        raise ValueError(f"{row['task_id']}: map must be a list of strings, one per row, got {rows!r}")
    return Bridge(row["task_id"], tuple(rows))
