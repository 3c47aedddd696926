"""The environment StrBuild."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from ...core import Outcome
from ..blocks import Fill
from ..building import BuildingEnv, refuse_num_builders
from ..commands import Orders, allowed, read_orders
from ..pictured import refuse_other, with_published
from ..pictures import LETTERS, PanelRow, colours, written
from ..sources import GENERATED, Data, Difficulty, Split, source_of, tasks_of_split
from . import prompts as texts
from .prompts import reply
from .rules import BLOCKS, HIGHEST_DIFFICULTY, MAX_COMMANDS, PALETTES, Word, missing, new_word, plan_of, score, word

Reward = Literal["reference", "iou"]

_WANTED = len(BLOCKS)  # kind of a letter cell in pictures of the goal
PUBLISHED = {
    "reward": "reference",
    "needs_both": False,
    "shows_target": False,
    "stop_at": 1.9,
    "shift": -2.0,
    "memory": "last",
    "prompts": Path(__file__).parent / "published",
}
"""Defaults of the published configurations, if they differ from the defaults of this package."""


class StrBuild(BuildingEnv[Word]):
    """Builders place blocks to write a word. Neighbouring blocks must differ. Each builder has a quota of cells to set.

    Commands are carried out in the order of the builders. The reward of a turn compares the world with the word.

    Args:
        split: "train" or "test", or "all" if `data` is not "generated".
        data: "generated" (random words of `difficulty` letters), "builtin" (ten words in the package), or a file or
            hub name with the columns "string" and "difficulty".
        variant: "ours", or "published" for the defaults of the published configurations: `reward` "reference",
            `needs_both` False, a hidden target, `stop_at` 1.9, `shift` -2, `memory` "last", and the published prompts
            in other words.
        num_agents: builders, 2 to 6, each with two kinds of blocks.
        difficulty: letters of a generated word, 1 to 8, or a range such as "2-4".
        reward: "iou" (0 to 1 per turn, 0 for an empty world) or "reference" (the published score, at most 2 per turn).
            `metric/score` is always the published score.
        needs_both: True lowers the reward "iou" if a builder has fewer letter cells than its quota, which is three
            quarters of an equal part.
        feedback: "position" (all letter cells), "perfect" (the changes to make) or "score".
        shows_target: True shows the word in the first prompt. False: the feedback of the first turn shows its cells.
        **kwargs: see `BuildingEnv`, `TaskEnv` and `TextParallelEnv`.

    Raises:
        ValueError: if a setting is invalid.
    """

    metadata: ClassVar[dict[str, Any]] = {**BuildingEnv.metadata, "name": "str_build_v2"}
    truth_metric: ClassVar[str | None] = "iou"
    block_letters = ".wscobaglpnqt#"
    block_colours = (*colours(BLOCKS), (120, 180, 120))

    own_prompt = texts.PROMPT
    needed_place = "target"
    other_places: ClassVar[Mapping[str, bool]] = {"rows": True, "block_list": True}
    originals = texts.ORIGINALS

    @with_published(PUBLISHED)
    def __init__(
        self,
        split: Split = "train",
        *,
        data: Data = GENERATED,
        num_agents: int = 2,
        difficulty: Difficulty = 3,
        reward: Reward = "iou",
        needs_both: bool = True,
        feedback: texts.Feedback = "position",
        shows_target: bool = True,
        **kwargs: Any,
    ):
        refuse_num_builders(num_agents)
        source = source_of(
            data, split, difficulty, highest=HIGHEST_DIFFICULTY, listed=words, new=new_word, num_builders=num_agents
        )
        if not shows_target:
            self.originals = replace(self.originals, left_out=texts.ABOUT_TARGET)
        super().__init__(source, num_agents, **kwargs)
        refuse_other("reward", reward, get_args(Reward))
        refuse_other("feedback", feedback, get_args(texts.Feedback))
        self._is_divided = needs_both and reward == "iou"
        self._reward, self._feedback, self._shows_target = reward, feedback, shows_target

    def start(self) -> Mapping[str, Mapping[str, str | int]]:
        settings = {
            "shows_target": self._shows_target,
            "is_divided": self._is_divided,
            "tells_hidden": self._variant == "ours",
        }
        return {
            agent: self.shared_fields(builder) | texts.fields(self.task, builder, self._world_rule, **settings)
            for builder, agent in enumerate(self.possible_agents)
        }

    def orders(self, reply: str, builder: int) -> Orders:
        return read_orders(
            reply,
            self.task.box,
            allowed(BLOCKS, self.task.palettes[builder]),
            verb="setblock",
            max_commands=MAX_COMMANDS,
            can_leave=self._can_leave,
        )

    def scored(self, orders: Sequence[Orders]) -> Outcome:
        result = score(self.task, self.world)
        strict = result.divided if self._is_divided else result.strict
        value = result.published if self._reward == "reference" else strict
        terms = {
            "coverage": 2.0 * result.coverage,
            "extra": -1.5 * result.extra,
            "same_neighbours": -result.same_neighbours,
            "idle_palettes": -0.25 * result.num_idle,
        }
        text = partial(texts.feedback, self._feedback, is_reminded=not self._shows_target and self.turn == 0)
        return Outcome(
            value,
            feedback=self.told(orders, value, result, text),
            terms=terms if self._reward == "reference" else {"iou": value},
            metrics={
                "score": result.published,
                "iou": result.iou,
                "same_neighbours": result.same_neighbours,
                "division": result.division,
                "success": float(strict == 1.0),
            },
        )

    def panels(self) -> list[PanelRow]:
        wanted = [[_WANTED if dot == "#" else 0 for dot in line] for line in self.task.rows]
        stands = self.world[::-1, 0, :].tolist()
        wrong = ((self.world[::-1, 0, :] != 0) != self.task.target[::-1, 0, :]).tolist()
        return [PanelRow("TARGET", [wanted]), PanelRow("BUILT", [stands], [wrong])]

    def reference(self, agent: str) -> str:
        """Return the commands of a team that builds a world with the highest score."""
        return texts.reply(missing(self.task, self.next_start, self.possible_agents.index(agent)))

    def exploits(self) -> Mapping[str, Callable[[str], str]]:
        return {name: partial(self._exploiting_reply, player) for name, player in EXPLOITS.items()}

    def _exploiting_reply(self, player: Exploit, agent: str) -> str:
        return player(self.task, self.possible_agents.index(agent))


def words(data: Data, split: Split, num_builders: int = 2) -> list[Word]:
    """Load the words of a file, a hub name, or the package's sample ("builtin")."""
    sample = Path(__file__).parent / "sample.csv"
    columns = {"text_fields": ("string",), "other_fields": ("difficulty",)}
    return tasks_of_split(data, split, partial(_numbered_word, num_builders=num_builders), sample, **columns)


def _numbered_word(row: Mapping[str, Any], number: int, num_builders: int) -> Word:
    try:
        difficulty = int(row["difficulty"])
    except (TypeError, ValueError):
        raise ValueError(f"difficulty={row['difficulty']!r} of a word must be an integer") from None
    return word(row["string"], f"str_build_{number:04d}", difficulty, num_builders)


Exploit: TypeAlias = Callable[[Word, int], str]


def whole_box(word: Word, builder: int) -> str:
    """Exploit: fill the whole box. Builders and their blocks alternate, so that neighbouring blocks differ."""
    palette = PALETTES[builder]
    return reply(
        Fill(x, y, 0, x, y, 0, palette[x // len(PALETTES) % len(palette)])
        for y, x in np.ndindex(word.box.height, word.box.width)
        if (x + y) % len(PALETTES) == builder
    )


def tokens(word: Word, builder: int) -> str:
    """Exploit: the last builder builds the whole word, except for two cells per other builder."""
    cells = [(x, y) for y, _, x in np.argwhere(word.target).tolist()]
    num_tokens = 2 * (word.num_builders - 1)
    if builder < word.num_builders - 1:
        return _set(cells[2 * builder : 2 * builder + 2], builder, by_turns=True)
    return _set(cells[num_tokens:], builder)


def first_kind_alone(word: Word, builder: int) -> str:
    """Exploit: builder 0 builds the whole word with alternating blocks; each other builder sets two cells."""
    cells = [(x, y) for y, _, x in np.argwhere(word.target).tolist()]
    return _set(cells[2 * builder :] if builder == 0 else cells[:2], builder, by_turns=builder > 0)


def mean_letter(word: Word, builder: int) -> str:
    """Exploit: build the mean of all letters in place of each letter, divided between the builders."""
    dots = np.mean([[[dot == "#" for dot in row] for row in reversed(written(letter))] for letter in LETTERS], axis=0)
    mask = np.zeros(word.target.shape, bool)
    for left in range(0, word.box.width, 7):
        mask[:, 0, left : left + 5] = dots[:, : word.box.width - left] >= 0.5
    return _divided(word, mask, builder)


def first_half(word: Word, builder: int) -> str:
    mask = word.target.copy()
    mask[:, :, word.box.width // 2 :] = False
    return _divided(word, mask, builder)


def same_half(word: Word, builder: int) -> str:
    cells = [(x, y) for y, _, x in np.argwhere(word.target).tolist() if y < word.box.height // 2 + 1]
    return _set(cells, builder)


EXPLOITS: Mapping[str, Exploit] = {
    "fill the whole box": whole_box,
    "one builds, others set two cells": tokens,
    "the first builds, others set two cells": first_kind_alone,
    "mean letter": mean_letter,
    "left half": first_half,
    "all build the lower half": same_half,
}


def _divided(word: Word, mask: NDArray[np.bool_], builder: int) -> str:
    plan = plan_of(mask, word.num_builders)
    fills = [Fill(x, y, 0, x, y, 0, int(plan[y, 0, x])) for y, _, x in np.argwhere(plan).tolist()]
    return reply(fill for fill in fills if fill.block in word.palettes[builder])


def _set(cells: Iterable[tuple[int, int]], builder: int, *, by_turns: bool = False) -> str:
    """Return a reply that sets cells to a builder's two blocks: as a checkerboard, or alternating along the list."""
    palette = PALETTES[builder]
    return reply(
        Fill(x, y, 0, x, y, 0, palette[(number if by_turns else x + y) % 2]) for number, (x, y) in enumerate(cells)
    )
