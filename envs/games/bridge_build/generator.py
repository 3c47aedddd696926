"""New maps from a seed: true and false pillars in the water between two banks."""

from __future__ import annotations

import random

from ..sources import Split, generated_split, is_held_out, refuse_difficulty
from .rules import MAX_COMMANDS, Bridge, beginning, is_connected, missing_on_side

HIGHEST_DIFFICULTY = 5
DEPTH = 13  # rows: with the usual view a worker never sees all of the far half


def new_bridge(seed: int, difficulty: int = 3, split: Split = "train") -> Bridge:
    """The generated map with this number; workers who know it can solve it without any loss.

    Args:
        seed: any integer; the same one gives the same map.
        difficulty: 1 (7 cells wide, 4 true and 6 false pillars) to 5 (11 cells wide, 8 true and 14 false pillars).
        split: "train" or "test"; no map is in both.
    """
    refuse_difficulty(difficulty, HIGHEST_DIFFICULTY)
    part = generated_split(split)
    rng = random.Random(f"bridge {part} {difficulty} {seed}")
    while True:
        bridge = Bridge(f"{part}-{difficulty}-{seed}", _drawn(rng, difficulty), difficulty)
        if is_held_out("\n".join(bridge.rows)) == (part == "test") and _is_solvable(bridge):
            return bridge


def _drawn(rng: random.Random, difficulty: int) -> tuple[str, ...]:
    """Pillars anywhere in the water: no way is safe for workers who do not know where they are."""
    width, num_true, num_false = 7 + difficulty // 2 * 2, 3 + difficulty, 4 + 2 * difficulty
    start, end = (rng.randrange(width // 3, width - width // 3) for _ in range(2))
    grid = [["."] * width for _ in range(DEPTH)]
    grid[0], grid[-1] = ["#"] * width, ["#"] * width
    grid[0][start], grid[-1][end] = "S", "T"
    water = [(x, z) for z in range(1, DEPTH - 1) for x in range(width)]
    for number, (x, z) in enumerate(rng.sample(water, num_true + num_false)):
        grid[z][x] = "Y" if number < num_true else "N"
    return tuple("".join(row) for row in grid)


def _is_solvable(bridge: Bridge) -> bool:
    if bridge.plan is None or is_connected(bridge, frozenset()):
        return False
    state = beginning(bridge)
    return all(len(missing_on_side(bridge, state, side)) <= MAX_COMMANDS // 2 for side in (0, 1))
