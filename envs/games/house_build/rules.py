"""Rules of HouseBuild: pure functions on read-only worlds.

A house is given by layers. Builders fill cuboids with a limited stock of each block. Spiders attack unless a builder
kills them.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..blocks import AIR, Box, Fill, World, cover, read_only
from ..sources import Shared, Split, generated_split, is_held_out, refuse_difficulty

MAX_COMMANDS = 300  # maximum per builder and turn
NUM_SPIDERS = 3
ATTACKS = (1, 3)  # least and most damage of one spider
HIT_POINTS = 5

_AIR_NAMES = frozenset({"air", "cave_air", "void_air"})


@dataclass(frozen=True, eq=False)
class House(Shared):
    """Task: a house, given by the block in every cell."""

    id: str
    blocks: tuple[str, ...]  # names of the blocks in the order of their numbers; 0 is air
    letters: str  # one letter per block, as in the layers of the data
    box: Box
    target: World
    num_builders: int = 2
    difficulty: int | None = None  # None: the house is not generated
    has_spare: bool = True  # True: a builder may fill 1.5 equal parts of each block, as published

    @cached_property
    def stock(self) -> Mapping[int, int]:
        """Map from each block to the number of cells that a builder may fill with it per turn.

        For n cells of the block and k builders: ceil(n / k), and with `has_spare` ceil(n / k) + floor(n / 2k).
        """
        counts = {block: int((self.target == block).sum()) for block in range(1, len(self.blocks))}
        team = self.num_builders
        return {block: -(-count // team) + self.has_spare * (count // (2 * team)) for block, count in counts.items()}

    @cached_property
    def owners(self) -> NDArray[np.uint8]:
        """Builder of each cell. Each block is divided equally, from below. The last builder clears cells."""
        owners = np.full(self.target.shape, self.num_builders - 1, np.uint8)
        for block in range(1, len(self.blocks)):
            shares = np.array_split(np.argwhere(self.target == block), self.num_builders)
            for builder, places in enumerate(shares):
                owners[tuple(places.T)] = builder
        owners.setflags(write=False)
        return owners

    @cached_property
    def rectangles(self) -> tuple[Fill, ...]:
        """Rectangles of height 1 that make up the house, including its air, from below."""
        shifted = cover(self.target + 1, self.box)
        return tuple(fill._replace(block=fill.block - 1) for fill in shifted)


@dataclass(frozen=True)
class HouseScore:
    """Result of comparing a world with the house."""

    match: float  # share of all cells, including air, that are correct
    coverage: float  # share of the house's blocks that are correct
    redundancy: float  # share of the house's air that holds a block
    iou: float  # cells with a block in both house and world / cells with a block in either
    exact_iou: float  # `iou` with only the cells of the correct block in the numerator
    damage: float  # damage by the spiders as a share of the hit points, at most 1
    num_kills: int  # number of `/kill` commands in this turn

    @property
    def published(self) -> float:
        """Reward of the published code, at most 1. An empty world gets the fraction of cells that are air.

        Source: LLM_Collab_Minecraft, HouseBuild.
        """
        return self.match - 0.1 * self.damage

    @property
    def paper(self) -> float:
        """Reward as the paper describes it, at most 2.

        Source: our reading of arXiv:2601.21972. The published code computes `published` instead.
        """
        return 2.0 * self.coverage - 1.5 * self.redundancy - 0.2 * self.damage

    @property
    def strict(self) -> float:
        """Reward of at most 1. An empty world without damage gets 0. Each `/kill` after the first costs 0.01."""
        return self.exact_iou - 0.1 * self.damage - 0.01 * max(0, self.num_kills - 1)


def score(house: House, world: World, *, attacks: tuple[int, ...], num_kills: int, is_safe: bool = False) -> HouseScore:
    """Compare the world after a turn with the house.

    `attacks` is the damage of each spider in hit points. One `/kill` command kills all spiders. `is_safe` is True if
    the spiders were killed in an earlier turn.
    """
    right = world == house.target
    wanted, stands = house.target != AIR, world != AIR
    num_wanted, num_standing = int(wanted.sum()), int(stands.sum())
    num_right, num_both = int((right & wanted).sum()), int((stands & wanted).sum())
    num_air = wanted.size - num_wanted
    either = num_wanted + num_standing - num_both
    return HouseScore(
        match=float(right.mean()),
        coverage=num_right / num_wanted,
        redundancy=(num_standing - num_both) / num_air if num_air else 0.0,
        iou=num_both / either,
        exact_iou=num_right / either,
        damage=0.0 if num_kills or is_safe else min(1.0, sum(attacks) / HIT_POINTS),
        num_kills=num_kills,
    )


def spiders(rng: random.Random) -> tuple[int, ...]:
    return tuple(rng.randint(*ATTACKS) for _ in range(NUM_SPIDERS))


def missing(house: House, world: World, builder: int) -> list[Fill]:
    """Return fills, within a builder's stock, that correct its cells (see `House.owners`)."""
    is_own = (house.target != world) & (house.owners == builder)
    fills = cover(np.where(is_own, house.target, AIR).astype(np.uint8), house.box)
    to_clear = (is_own & (house.target == AIR)).astype(np.uint8)
    return [*(fill._replace(block=AIR) for fill in cover(to_clear, house.box)), *fills]


def wrong_cells(house: House, world: World) -> list[tuple[int, int, int, int]]:
    """Return (x, y, z, correct block) of each wrong cell."""
    x, y, z = house.box.lower
    return [
        (cx + x, cy + y, cz + z, int(house.target[cy, cz, cx]))
        for cy, cz, cx in np.argwhere(house.target != world).tolist()
    ]


def rectangles_to_mend(house: House, world: World) -> list[Fill]:
    """Return the rectangles of the house in which at least one cell is wrong."""
    x, y, z = house.box.lower
    is_wrong = house.target != world
    return [
        fill
        for fill in house.rectangles
        if is_wrong[fill.y1 - y, fill.z1 - z : fill.z2 - z + 1, fill.x1 - x : fill.x2 - x + 1].any()
    ]


def stock_left(house: House, fills: Sequence[Fill]) -> dict[int, int]:
    """Return a builder's remaining stock after its fills of a turn."""
    return {
        block: stock - sum(fill.volume for fill in fills if fill.block == block) for block, stock in house.stock.items()
    }


def affordable_rectangles(house: House, left: Mapping[int, int]) -> list[Fill]:
    """Return rectangles that the remaining stock can fill: whole rectangles, largest first, then a part of the next."""
    stock = dict(left)
    chosen: list[Fill] = []
    others: list[Fill] = []
    by_size = sorted((fill for fill in house.rectangles if fill.block != AIR), key=lambda fill: (-fill.volume, fill))
    for fill in by_size:
        if fill.volume <= stock.get(fill.block, 0):
            chosen.append(fill)
            stock[fill.block] -= fill.volume
        else:
            others.append(fill)
    parts = [part for fill in others if (part := _largest_part(fill, stock.get(fill.block, 0)))]
    return [*chosen, *([max(parts, key=lambda part: part.volume)] if parts else [])]


def house(row: Mapping[str, Any], num_builders: int = 2, has_spare: bool = True) -> House:
    """Convert a row with the benchmark's columns to a task.

    Args:
        row: "task_id"; "inventory", the block of each letter, including air; "target_spec" with "layers", a list of
            {"y", "rows"}, rows by z, letters by x; and optionally "bbox" with "from" and "to".
        num_builders: number of builders.
        has_spare: see `House`.

    Raises:
        ValueError: if the row has other columns or types, if a layer is missing, has another size or an unknown letter,
            or if "bbox" does not fit the layers.
    """
    name = str(row["task_id"])
    _refuse_other_form(name, row)
    inventory = {str(letter): str(block).removeprefix("minecraft:") for letter, block in row["inventory"].items()}
    air = next((letter for letter, block in inventory.items() if block in _AIR_NAMES), None)
    if air is None:
        raise ValueError(f"{name}: inventory={inventory} has no letter for air")
    others = [letter for letter in inventory if letter != air]
    letters = "".join([air, *others])
    layers = sorted(row["target_spec"]["layers"], key=lambda layer: int(layer["y"]))
    heights = [int(layer["y"]) for layer in layers]
    grid = [[[letters.find(letter) for letter in line] for line in layer["rows"]] for layer in layers]
    sizes = {len(line) for layer in grid for line in layer}, {len(layer) for layer in grid}
    if heights != list(range(heights[0], heights[0] + len(heights))) or any(len(size) != 1 for size in sizes):
        raise ValueError(f"{name}: layers must have consecutive y and one size; y is {heights}")
    if min(block for layer in grid for line in layer for block in line) < 0:
        raise ValueError(f"{name}: a layer has a letter outside the inventory {letters!r}")
    target = read_only(np.array(grid, np.uint8))
    if not target.any():
        raise ValueError(f"{name}: the layers contain only air")
    corner = (row.get("bbox") or {}).get("from", [0, heights[0], 0])
    box = Box(target.shape[2], target.shape[0], target.shape[1], *(int(number) for number in corner))
    far_corner = (row.get("bbox") or {}).get("to", box.upper)
    if box.y != heights[0] or tuple(far_corner) != box.upper:
        raise ValueError(f"{name}: bbox {row['bbox']} does not fit the layers from {box.lower} to {box.upper}")
    blocks = ("air", *(inventory[letter] for letter in others))
    return House(name, blocks, letters, box, target, num_builders, has_spare=has_spare)


def _refuse_other_form(name: str, row: Mapping[str, Any]) -> None:
    inventory, spec = row["inventory"], row["target_spec"]
    if not isinstance(inventory, Mapping):
        raise ValueError(f"{name}: inventory must map letters to blocks, got {inventory!r}")
    layers = spec.get("layers") if isinstance(spec, Mapping) else None
    if not isinstance(layers, list) or not layers:
        raise ValueError(f"{name}: target_spec must have a list of layers, got {spec!r}")
    for layer in layers:
        rows = layer.get("rows") if isinstance(layer, Mapping) else None
        if not isinstance(rows, list) or not all(isinstance(line, str) for line in rows) or "y" not in layer:
            raise ValueError(f"{name}: a layer must have y and rows, a list of strings; got {layer!r}")


def _largest_part(fill: Fill, max_cells: int) -> Fill | None:
    """Return the largest part of a rectangle that begins at its lower corner and has at most `max_cells` cells."""
    width, depth = fill.x2 - fill.x1 + 1, fill.z2 - fill.z1 + 1
    parts = [(w, min(depth, max_cells // w)) for w in range(1, min(width, max_cells) + 1)]
    if not parts:
        return None
    w, d = max(parts, key=lambda part: (part[0] * part[1], part[0]))
    return fill._replace(x2=fill.x1 + w - 1, z2=fill.z1 + d - 1)


HIGHEST_DIFFICULTY = 5
GENERATED_BLOCKS = (
    *("air", "white_concrete", "obsidian", "stone_stairs", "stone_bricks"),
    *("planks", "bricks", "sandstone", "spruce_planks"),
)
_LETTERS = "ACOSBDRNP"

_ROLES = ("wall", "floor", "corner", "door", "roof", "eaves")
_ROOFS = ("flat", "gable along x", "gable along z", "hip")


def new_house(
    seed: int, difficulty: int = 3, split: Split = "train", num_builders: int = 2, has_spare: bool = True
) -> House:
    """Generate a house from a seed.

    Args:
        seed: any integer; the same seed gives the same house.
        difficulty: 1 (4 by 4, two blocks) to 5 (up to 9 by 9, six blocks, every roof, inner walls). The published
            houses (6 by 7, 5 blocks) are similar to 3.
        split: "train" or "test", which share no house.
        num_builders: number of builders; the houses do not depend on it.
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
            return House(name, GENERATED_BLOCKS, _LETTERS, box, read_only(target), num_builders, difficulty, has_spare)


def _drawn(rng: random.Random, difficulty: int) -> NDArray[np.uint8]:
    width, depth = (rng.randint(3 + difficulty, 4 + difficulty) for _ in range(2))
    wall_height = rng.randint(2, 2 + (difficulty + 1) // 2)
    kinds = rng.sample(range(1, len(GENERATED_BLOCKS)), 1 + difficulty)
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
    """Return roof layers that shrink towards the top. Their lower edges are eaves."""
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
    """Put a door into the wall at z = 0: one block and, if the wall is high enough, air above it."""
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
