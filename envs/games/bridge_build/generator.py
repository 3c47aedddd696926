"""New maps from a seed: true pillars along a winding way over the water, false ones beside it."""

from __future__ import annotations

import random

from ..fog import Cell
from ..sources import Split, generated_split, is_held_out, refuse_difficulty
from .rules import MAX_COMMANDS, Bridge, beginning, is_connected, missing

HIGHEST_DIFFICULTY = 5


def new_bridge(seed: int, difficulty: int = 3, split: Split = "train") -> Bridge:
    """The generated map with this number; it can be solved without any loss.

    Args:
        seed: any integer; the same one gives the same map.
        difficulty: 1 (7 by 7, five pillars) to 5 (17 by 15, twenty-five). The published maps, of 13 by 11 and 20
            pillars, are about as hard as 3.
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
    width, depth = 5 + 2 * difficulty + (difficulty > 1) * 2, 5 + 2 * difficulty
    start, end = rng.randrange(1, width - 1), rng.randrange(1, width - 1)
    way = _winding_way(rng, (start, 1), end, width, depth)
    grid = [["."] * width for _ in range(depth)]
    grid[0], grid[-1] = ["#"] * width, ["#"] * width
    grid[0][start], grid[-1][end] = "S", "T"
    for x, z in rng.sample(way, min(len(way), 1 + 2 * difficulty)):
        grid[z][x] = "Y"
    water = [(x, z) for z in range(1, depth - 1) for x in range(width) if (x, z) not in way]
    for x, z in rng.sample(water, min(len(water), 3 * difficulty - 1)):
        grid[z][x] = "N" if rng.random() < 0.75 else "Y"
    return tuple("".join(row) for row in grid)


def _winding_way(rng: random.Random, start: Cell, end: int, width: int, depth: int) -> list[Cell]:
    """Cells side by side from one bank to the other, with detours."""
    x, z = start
    way = [(x, z)]
    while z < depth - 2:
        goal = end if z >= depth - 4 else rng.randrange(width)
        for _ in range(rng.randint(0, 3)):
            if x != goal:
                x += 1 if goal > x else -1
                way.append((x, z))
        z += 1
        way.append((x, z))
    while x != end:
        x += 1 if end > x else -1
        way.append((x, z))
    return way


def _is_solvable(bridge: Bridge) -> bool:
    if bridge.plan is None or is_connected(bridge, frozenset()):
        return False
    state = beginning(bridge)
    return all(len(missing(bridge, state, worker)) <= MAX_COMMANDS // 2 for worker in (0, 1))
