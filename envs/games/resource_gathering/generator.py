"""New lands from a seed: minerals on one side, forest on the other, and each gatherer on the wrong one."""

from __future__ import annotations

import random

from ..fog import Cell
from ..sources import Split, generated_split, is_held_out, refuse_difficulty
from .rules import Amounts, Land, Settings, after, beginning, is_completed, reference_walk

HIGHEST_DIFFICULTY = 5
NUM_TURNS = 4  # in which a generated land can be finished, with the usual settings


def new_land(seed: int, difficulty: int = 3, split: Split = "train") -> Land:
    """The generated land with this number; the reference players finish it within four turns.

    Args:
        seed: any integer; the same one gives the same land.
        difficulty: 1 (6 by 6, little wanted) to 5 (10 by 10, much wanted). The published lands, of 8 by 8, are about
            as hard as 3.
        split: "train" or "test"; no land is in both.
    """
    refuse_difficulty(difficulty, HIGHEST_DIFFICULTY)
    part = generated_split(split)
    rng = random.Random(f"land {part} {difficulty} {seed}")
    while True:
        land = _drawn(rng, difficulty, f"{part}-{difficulty}-{seed}")
        content = f"{land.width} {land.depth} {sorted(land.lies.items())} {land.starts} {land.goal}"
        if is_held_out(content) == (part == "test") and _is_finished_in_time(land):
            return land


def _drawn(rng: random.Random, difficulty: int, name: str) -> Land:
    side = 5 + difficulty
    is_west_to_east, is_turned = rng.random() < 0.5, rng.random() < 0.5
    third = (side + 1) // 3

    def placed(along: int, across: int) -> Cell:
        """A cell by its distance from the minerals' edge, and along that edge."""
        far = side - 1 - along if is_turned else along
        return (far, across) if is_west_to_east else (across, far)

    minerals = [placed(along, across) for along in range(third) for across in range(side)]
    forest = [placed(side - 1 - along, across) for along in range(third) for across in range(side)]
    first, second = rng.choice(minerals), rng.choice(forest)  # wood is the first one's, and far away
    lies: dict[Cell, Amounts] = {}
    for cell in rng.sample([cell for cell in minerals if cell != first], 3 + difficulty):
        lies[cell] = (0, rng.randint(1, 3), rng.randint(0, 2))
    for cell in rng.sample([cell for cell in forest if cell != second], 3 + difficulty):
        lies[cell] = (rng.randint(1, 4), 0, 0)
    much = 3 * difficulty // 2
    goal = (rng.randint(1, 3) + much, rng.randint(1, 3) + much, 1 + difficulty // 2)
    return Land(name, side, side, lies, (first, second), goal, difficulty)


def _is_finished_in_time(land: Land) -> bool:
    settings = Settings()
    state = beginning(land, settings)
    for _ in range(NUM_TURNS):
        walks = [reference_walk(land, state, gatherer, settings) for gatherer in (0, 1)]
        state, _ = after(land, state, walks, ((), ()), settings)
    return is_completed(land, state)
