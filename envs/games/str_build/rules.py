"""Rules of StrBuild: pure functions on read-only worlds, free of text and of the agent API.

A word is to be built of blocks, letter cells only, so that no two neighbouring blocks look the same, and so that both
builders' blocks are all in it.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..blocks import AIR, Box, Fill, World, read_only
from ..font import LETTERS, written
from ..sources import Shared, Split, generated_split, is_held_out, refuse_difficulty

BLOCKS = ("air", "oak_planks", "stone", "white_concrete", "obsidian")
PALETTES = ((1, 2), (3, 4))  # builder_0's blocks and builder_1's, by number
MAX_COMMANDS = 300  # per turn, both builders together
HIGHEST_DIFFICULTY = 8  # letters of a generated word

# The published words are for comparison, so the generator never makes them.
_PUBLISHED = frozenset({"I", "C", "M", "L", "MC", "CM", "LI", "LLM", "ICML", "CLIM"})


@dataclass(frozen=True, eq=False)
class Word(Shared):
    """A task: a word, and where its letters' cells are."""

    id: str
    text: str
    difficulty: int
    rows: tuple[str, ...]  # from the top, "#" where a block is wanted
    target: NDArray[np.bool_]  # [y, z, x], True where a block is wanted
    plan: World  # one world that scores the maximum

    @property
    def box(self) -> Box:
        """The word's own rectangle; nothing may be built outside."""
        return Box(width=len(self.rows[0]), height=len(self.rows), depth=1)


@dataclass(frozen=True)
class Score:
    """How a world compares with the word."""

    coverage: float  # share of the wanted cells that hold a block, of whatever kind
    extra: float  # share of the other cells that hold one
    same_neighbours: float  # share of the pairs of neighbouring blocks that look the same
    num_idle: int  # builders of whose blocks one is nowhere to be seen
    iou: float  # blocks where wanted / cells where a block is wanted or stands

    @property
    def published(self) -> float:
        """The benchmark's reward, at most 2.

            2 coverage - 1.5 extra - same_neighbours - 0.25 num_idle

        Source: LLM_Collab_Minecraft, StrBuild.
        """
        return 2.0 * self.coverage - 1.5 * self.extra - self.same_neighbours - 0.25 * self.num_idle

    @property
    def strict(self) -> float:
        """A reward that pays nothing for nothing, 0 to 1.

        iou (1 - same_neighbours) (1 - num_idle / 2)
        """
        return self.iou * (1.0 - self.same_neighbours) * (1.0 - self.num_idle / 2)


def word(text: str, id: str, difficulty: int) -> Word:
    """The task of building a text.

    Raises:
        ValueError: if the text is empty or holds other characters than letters, digits and spaces.
    """
    rows = written(text)
    target = np.array([[dot == "#" for dot in row] for row in reversed(rows)])[:, None, :]
    target.setflags(write=False)
    return Word(id, text.upper(), difficulty, rows, target, _plan(target))


def new_word(seed: int, difficulty: int = 3, split: Split = "train") -> Word:
    """The generated word with this number: random letters.

    Args:
        seed: any integer; the same one gives the same word.
        difficulty: how many letters, 1 to 8. Of one letter there are only 22 words, of two 672.
        split: "train" or "test"; no word is in both, and the published words are in neither.
    """
    refuse_difficulty(difficulty, HIGHEST_DIFFICULTY)
    part = generated_split(split)
    rng = random.Random(f"str {part} {difficulty} {seed}")
    while True:
        text = "".join(rng.choices(LETTERS, k=difficulty))
        if text not in _PUBLISHED and is_held_out(text) == (part == "test"):
            return word(text, f"{part}-{difficulty}-{seed}", difficulty)


def score(task: Word, world: World) -> Score:
    """How a world compares with the task's word."""
    stands = world != AIR
    wanted = task.target
    num_wanted, num_covered = int(wanted.sum()), int((stands & wanted).sum())
    num_extra = int(stands.sum()) - num_covered
    num_other = wanted.size - num_wanted
    face = world[:, 0, :]
    num_pairs = num_same = 0
    for one, next_to_it in ((face[:, :-1], face[:, 1:]), (face[:-1], face[1:])):
        both = (one != AIR) & (next_to_it != AIR)
        num_pairs += int(both.sum())
        num_same += int((both & (one == next_to_it)).sum())
    seen = set(world.ravel().tolist())
    return Score(
        coverage=num_covered / num_wanted,
        extra=num_extra / num_other if num_other else 0.0,
        same_neighbours=num_same / num_pairs if num_pairs else 0.0,
        num_idle=sum(not seen.issuperset(palette) for palette in PALETTES),
        iou=num_covered / (num_wanted + num_extra),
    )


def is_builders(cell_block: int, builder: int) -> bool:
    """Whether a block of the plan is of this builder's palette."""
    return cell_block in PALETTES[builder]


def missing(task: Word, world: World, builder: int) -> list[Fill]:
    """What one builder has to change so that the world becomes the plan; the last builder also clears what is extra."""
    fills = []
    for y, z, x in np.argwhere(task.plan != world).tolist():
        block = int(task.plan[y, z, x])
        if is_builders(block, builder) or (block == AIR and builder == len(PALETTES) - 1):
            fills.append(Fill(x, y, z, x, y, z, block))
    return fills


def _plan(target: NDArray[np.bool_]) -> World:
    """Blocks by diagonals, so that neighbours always differ and all four blocks are used.

    Along x and y the kind changes by 1 and 2 (or 2 and 1) of 4, so no neighbours are equal. Which of the two uses all
    kinds depends on the letters: one of them does for every letter.
    """
    heights, _, widths = np.indices(target.shape)
    candidates = [
        np.where(target, np.array([1, 3, 2, 4], np.uint8)[(a * widths + b * heights) % 4], AIR).astype(np.uint8)
        for a, b in ((1, 2), (2, 1))
    ]
    return read_only(max(candidates, key=lambda plan: len(np.unique(plan))))
