"""New houses from a seed: walls, corners, a door, windows and a roof, of sizes and kinds that grow with difficulty."""

from __future__ import annotations

import random

import numpy as np
from numpy.typing import NDArray

from ..blocks import AIR, Box, read_only
from ..sources import Split, generated_split, is_held_out, refuse_difficulty
from .rules import House

HIGHEST_DIFFICULTY = 5
BLOCKS = (
    *("air", "white_concrete", "obsidian", "stone_stairs", "stone_bricks"),
    *("planks", "bricks", "sandstone", "spruce_planks"),
)
_LETTERS = "ACOSBDRNP"

_ROLES = ("wall", "floor", "corner", "door", "roof", "eaves")
_ROOFS = ("flat", "gable along x", "gable along z", "hip")


def new_house(
    seed: int,
    difficulty: int = 3,
    split: Split = "train",
    num_builders: int = 2,
    has_spare: bool = True,
) -> House:
    """The generated house with this number.

    Args:
        seed: any integer; the same one gives the same house.
        difficulty: 1 (a box of 4 by 4 of two blocks) to 5 (up to 9 by 9, six blocks, every roof, inner walls). The
            published houses, of 6 by 7 and 5 blocks, are about as hard as 3.
        split: "train" or "test"; no house is in both.
        num_builders: how many build it; the houses are the same for any number.
        has_spare: see `House`.
    """
    refuse_difficulty(difficulty, HIGHEST_DIFFICULTY)
    part = generated_split(split)
    rng = random.Random(f"house {part} {difficulty} {seed}")
    while True:
        target = _drawn(rng, difficulty)
        if is_held_out(f"{target.shape}{target.tolist()}") == (part == "test"):
            height, depth, width = target.shape
            box = Box(width, height, depth)
            name = f"{part}-{difficulty}-{seed}"
            return House(name, BLOCKS, _LETTERS, box, read_only(target), num_builders, difficulty, has_spare)


def _drawn(rng: random.Random, difficulty: int) -> NDArray[np.uint8]:
    width, depth = (rng.randint(3 + difficulty, 4 + difficulty) for _ in range(2))
    wall_height = rng.randint(2, 2 + (difficulty + 1) // 2)
    kinds = rng.sample(range(1, len(BLOCKS)), 1 + difficulty)
    role = {name: kinds[i] if i < len(kinds) else rng.choice(kinds) for i, name in enumerate(_ROLES)}
    roof = rng.choice(_ROOFS[: difficulty + 1] if difficulty < 3 else _ROOFS)
    layers = [np.full((depth, width), role["floor"], np.uint8)]
    layers += [_walls(depth, width, role) for _ in range(wall_height)]
    house = np.stack([*layers, *_roof(roof, depth, width, role)])
    _cut_door(rng, house, role, wall_height)
    if difficulty >= 2:
        _cut_windows(rng, house, wall_height, max_windows=difficulty)
    if difficulty >= 4:
        _add_inner_wall(rng, house, role["wall"], wall_height)
    return house


def _walls(depth: int, width: int, role: dict[str, int]) -> NDArray[np.uint8]:
    layer = np.full((depth, width), role["wall"], np.uint8)
    layer[1:-1, 1:-1] = AIR
    layer[[0, 0, -1, -1], [0, -1, 0, -1]] = role["corner"]
    return layer


def _roof(kind: str, depth: int, width: int, role: dict[str, int]) -> list[NDArray[np.uint8]]:
    """Layers that get smaller towards the top; their lower edges are eaves."""
    step_z, step_x = {"flat": (0, 0), "gable along x": (1, 0), "gable along z": (0, 1), "hip": (1, 1)}[kind]
    layers: list[NDArray[np.uint8]] = []
    z = x = 0
    while depth - 2 * z > 0 and width - 2 * x > 0 and len(layers) < 4:
        layer = np.zeros((depth, width), np.uint8)
        layer[z : depth - z, x : width - x] = role["roof"]
        if step_z:
            layer[[z, depth - 1 - z], x : width - x] = role["eaves"]
        if step_x:
            layer[z : depth - z, [x, width - 1 - x]] = role["eaves"]
        layers.append(layer)
        if kind == "flat":
            break
        z, x = z + step_z, x + step_x
    return layers


def _cut_door(rng: random.Random, house: NDArray[np.uint8], role: dict[str, int], wall_height: int) -> None:
    """A door in the wall at z = 0: one block of its own, open above it where the wall is high enough."""
    x = rng.randint(1, house.shape[2] - 2)
    house[1, 0, x] = role["door"]
    if wall_height > 2:
        house[2, 0, x] = AIR


def _cut_windows(rng: random.Random, house: NDArray[np.uint8], wall_height: int, max_windows: int) -> None:
    _, depth, width = house.shape
    sides = [(z, x) for z in range(1, depth - 1) for x in (0, width - 1)]
    sides += [(depth - 1, x) for x in range(1, width - 1)]
    for z, x in rng.sample(sides, rng.randint(1, max_windows)):
        house[rng.randint(1, wall_height), z, x] = AIR


def _add_inner_wall(rng: random.Random, house: NDArray[np.uint8], wall: int, wall_height: int) -> None:
    z = rng.randint(2, house.shape[1] - 3)
    gap = rng.randint(1, house.shape[2] - 2)
    for x in range(1, house.shape[2] - 1):
        if x != gap:
            house[1 : 1 + wall_height, z, x] = wall
