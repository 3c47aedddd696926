"""Generator of maps (lands). The resources of each gatherer lie around the start of its partner."""

from __future__ import annotations

import random

from ..fog import Cell, is_on_map
from ..sources import Split, generated_split, is_held_out, refuse_difficulty
from .players import honest_walk, told_facts
from .rules import RESOURCES, Amounts, Land, Settings, after, beginning, is_completed

HIGHEST_DIFFICULTY = 5
NUM_TURNS = 4  # turns in which every generated map can be completed with default settings
_APART = (7, 11)  # least and most steps between the starts
_RING = Settings().view  # distance of resources from a start: just visible, out of reach


def new_land(seed: int, difficulty: int = 3, split: Split = "train") -> Land:
    """Generate a map (land) from a seed. Scripted players that send facts complete it in four turns.

    Args:
        seed: any integer; the same seed gives the same map.
        difficulty: 1 (26 by 26, goal 60 % of 6 heaps) to 5 (30 by 30, 80 % of 10 heaps).
        split: "train" or "test", which share no map.
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
    side, num_heaps = 25 + difficulty, 2 + (difficulty + 1) // 2
    starts = _starts(rng, side)
    lies: dict[Cell, Amounts] = {}
    for cell in _beside(rng, starts[0], side, num_heaps):
        lies[cell] = (0, rng.randint(1, 3), rng.randint(0, 2))
    for cell in _beside(rng, starts[1], side, num_heaps):
        lies[cell] = (rng.randint(1, 4), 0, 0)
    totals = [sum(amounts[kind] for amounts in lies.values()) for kind in range(len(RESOURCES))]
    wood, stone, iron = (max(1, round((0.55 + 0.05 * difficulty) * total)) for total in totals)
    return Land(name, side, side, lies, starts, (wood, stone, iron), difficulty)


def _starts(rng: random.Random, side: int) -> tuple[Cell, Cell]:
    """Sample two cells whose distance is within `_APART`."""
    while True:
        first, second = ((rng.randrange(side), rng.randrange(side)) for _ in range(2))
        if _APART[0] <= max(abs(first[0] - second[0]), abs(first[1] - second[1])) <= _APART[1]:
            return first, second


def _beside(rng: random.Random, start: Cell, side: int, num_cells: int) -> list[Cell]:
    """Sample adjacent cells of the square ring with radius `_RING` around a start."""
    ring = [
        (start[0] + dx, start[1] + dz)
        for dx in range(-_RING, _RING + 1)
        for dz in range(-_RING, _RING + 1)
        if max(abs(dx), abs(dz)) == _RING and is_on_map((start[0] + dx, start[1] + dz), side, side)
    ]
    x, z = rng.choice(ring)
    return sorted(ring, key=lambda cell: abs(cell[0] - x) + abs(cell[1] - z))[:num_cells]


def _is_finished_in_time(land: Land) -> bool:
    settings = Settings()
    state = beginning(land, settings)
    for turn in range(NUM_TURNS):
        walks = [honest_walk(land, state, gatherer, settings, is_waiting=turn == 0) for gatherer in (0, 1)]
        facts = [told_facts(land, state, gatherer, settings) for gatherer in (0, 1)]
        state, _ = after(land, state, walks, facts, settings)
    return is_completed(land, state)
