"""Rules of StrBuild: pure functions on read-only worlds.

Builders form a word from blocks. Neighbouring blocks must differ, and all kinds of blocks must be used.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..blocks import AIR, Box, Fill, World, read_only
from ..pictures import LETTERS, written
from ..sources import Shared, Split, generated_split, is_held_out, refuse_difficulty

BLOCKS = (
    *("air", "oak_planks", "stone", "white_concrete", "obsidian"),
    *("bricks", "sandstone", "glass", "gold_block", "prismarine", "netherrack", "quartz_block", "terracotta"),
)
PALETTES = tuple((block, block + 1) for block in range(1, len(BLOCKS), 2))
"""Block numbers of each builder. The first two builders have the same blocks as in the published game."""
MAX_COMMANDS = 150  # maximum per builder and turn
HIGHEST_DIFFICULTY = 8  # maximum number of letters of a generated word

# The generator never makes the published words, which are for comparison.
_PUBLISHED = frozenset({"I", "C", "M", "L", "MC", "CM", "LI", "LLM", "ICML", "CLIM"})


@dataclass(frozen=True, eq=False)
class Word(Shared):
    """Task: a word and the cells of its letters."""

    id: str
    text: str
    difficulty: int
    rows: tuple[str, ...]  # rows of the word from the top, "#" for letter cells
    target: NDArray[np.bool_]  # [y, z, x], True for letter cells
    plan: World  # a world with the highest score
    num_builders: int = 2

    @property
    def palettes(self) -> tuple[tuple[int, int], ...]:
        return PALETTES[: self.num_builders]

    @property
    def quota(self) -> int:
        """Number of letter cells that each builder must set when the word is complete."""
        return quota(int(self.target.sum()), self.num_builders)

    @property
    def box(self) -> Box:
        return Box(width=len(self.rows[0]), height=len(self.rows), depth=1)


@dataclass(frozen=True)
class WordScore:
    """Result of comparing a world with the word."""

    coverage: float  # share of letter cells with a block
    extra: float  # share of other cells with a block
    same_neighbours: float  # share of pairs of neighbouring blocks of one kind
    num_idle: int  # number of builders that did not use both of their kinds of blocks
    num_builders: int
    iou: float  # letter cells with a block / cells that are letter cells or have a block
    division: float  # letter cells of the builder with the fewest / quota, at most 1

    @property
    def published(self) -> float:
        """Reward of the benchmark, at most 2.

        Source: LLM_Collab_Minecraft, StrBuild.
        """
        return 2.0 * self.coverage - 1.5 * self.extra - self.same_neighbours - 0.25 * self.num_idle

    @property
    def strict(self) -> float:
        """Reward from 0 to 1. An empty world gets 0."""
        return self.iou * (1.0 - self.same_neighbours) * (1.0 - self.num_idle / self.num_builders)

    @property
    def divided(self) -> float:
        """Strict reward, lowered if a builder has fewer letter cells than its quota."""
        return self.strict * self.division


def quota(num_cells: int, num_builders: int) -> int:
    """Return the number of letter cells that each builder must set: three quarters of an equal part, at least 1."""
    return max(1, 3 * num_cells // (4 * num_builders))


def word(text: str, id: str, difficulty: int, num_builders: int = 2) -> Word:
    """Create the task of building a text.

    Raises:
        ValueError: if the text is empty, has other characters than letters, digits and spaces, or has fewer cells than
            the builders have kinds of blocks.
    """
    rows = written(text)
    target = np.array([[dot == "#" for dot in row] for row in reversed(rows)])[:, None, :]
    target.setflags(write=False)
    if int(target.sum()) < 2 * num_builders:
        raise ValueError(
            f"{id}: {text!r} has {int(target.sum())} cells, fewer than the {2 * num_builders} kinds of blocks of "
            f"{num_builders} builders; use longer words or fewer builders"
        )
    return Word(id, text.upper(), difficulty, rows, target, plan_of(target, num_builders), num_builders)


def new_word(seed: int, difficulty: int = 3, split: Split = "train", num_builders: int = 2) -> Word:
    """Generate a word of random letters from a seed.

    Args:
        seed: any integer; the same seed gives the same word.
        difficulty: number of letters, 1 to 8. There are only 22 words of one letter and 672 of two.
        split: "train" or "test", which share no word. The published words are in neither.
        num_builders: number of builders; the words do not depend on it.
    """
    refuse_difficulty(difficulty, HIGHEST_DIFFICULTY)
    part = generated_split(split)
    rng = random.Random(f"str {part} {difficulty} {seed}")
    while True:
        text = "".join(rng.choices(LETTERS, k=difficulty))
        if text not in _PUBLISHED and is_held_out(text) == (part == "test"):
            return word(text, f"{part}-{difficulty}-{seed}", difficulty, num_builders)


def score(task: Word, world: World) -> WordScore:
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
    least = min(num_cells(world, wanted, palette) for palette in task.palettes)
    return WordScore(
        coverage=num_covered / num_wanted,
        extra=num_extra / num_other if num_other else 0.0,
        same_neighbours=num_same / num_pairs if num_pairs else 0.0,
        num_idle=sum(not seen.issuperset(palette) for palette in task.palettes),
        num_builders=task.num_builders,
        iou=num_covered / (num_wanted + num_extra),
        division=min(1.0, least / quota(num_covered, task.num_builders)),
    )


def missing(task: Word, world: World, builder: int) -> list[Fill]:
    """Return one builder's fills that turn the world into the plan. The last builder also clears other cells."""
    fills = []
    for y, z, x in np.argwhere(task.plan != world).tolist():
        block = int(task.plan[y, z, x])
        if block in task.palettes[builder] or (block == AIR and builder == task.num_builders - 1):
            fills.append(Fill(x, y, z, x, y, z, block))
    return fills


def plan_of(target: NDArray[np.bool_], num_builders: int) -> World:
    """Return a world with different neighbouring blocks, all kinds of blocks if cells suffice, and all quotas met."""
    palettes = PALETTES[:num_builders]
    kinds = np.array([first for first, _ in palettes] + [second for _, second in palettes], np.uint8)
    candidates = (_by_diagonals(target, kinds, 1, 2), _by_diagonals(target, kinds, 2, 1), _in_turn(target, kinds))

    def quality(plan: World) -> tuple[int, int]:
        least = min(num_cells(plan, target, palette) for palette in palettes)
        return len(np.unique(plan)), min(least, quota(int(target.sum()), num_builders))

    return read_only(max(candidates, key=quality))


def num_cells(world: World, target: NDArray[np.bool_], palette: tuple[int, int]) -> int:
    return int((np.isin(world, palette) & target).sum())


def _by_diagonals(target: NDArray[np.bool_], kinds: NDArray[np.uint8], along_x: int, along_y: int) -> World:
    """Return a plan in which the kind of block changes by a fixed step per cell along x, and by another along y."""
    heights, _, widths = np.indices(target.shape)
    plan = np.where(target, kinds[(along_x * widths + along_y * heights) % len(kinds)], AIR)
    return plan.astype(np.uint8)


def _in_turn(target: NDArray[np.bool_], kinds: NDArray[np.uint8]) -> World:
    """Return a plan in which each cell has the least used kind that differs from its left and lower neighbours."""
    plan = np.zeros(target.shape, np.uint8)
    used = dict.fromkeys(kinds.tolist(), 0)
    for y, z, x in np.argwhere(target).tolist():
        beside = {int(plan[y, z, x - 1]) if x else AIR, int(plan[y - 1, z, x]) if y else AIR}
        kind = min((kind for kind in used if kind not in beside), key=used.__getitem__)
        plan[y, z, x] = kind
        used[kind] += 1
    return plan
