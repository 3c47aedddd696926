"""Rules of HouseBuild: pure functions on read-only worlds, free of text and of the agent API.

A house is given layer by layer. Builders fill cuboids, each with a limited stock of every block, while spiders
attack whoever does not order them killed.
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

MAX_COMMANDS = 300  # per builder and turn
NUM_SPIDERS = 3
ATTACKS = (1, 3)  # the least and the most damage of one spider
HIT_POINTS = 5

_AIR_NAMES = frozenset({"air", "cave_air", "void_air"})


@dataclass(frozen=True, eq=False)
class House(Shared):
    """A task: what is to stand in every cell."""

    id: str
    blocks: tuple[str, ...]  # their names, by number; air is the first
    letters: str  # one for each block, as in the layers
    box: Box
    target: World
    num_builders: int = 2
    difficulty: int | None = None  # of a generated one
    has_spare: bool = True  # whether a builder may fill half of an equal part more, as published

    @cached_property
    def stock(self) -> Mapping[int, int]:
        """Cells that one of k builders may fill with each block in one turn: a k-th of the n wanted.

        ceil(n / k), with `has_spare` ceil(n / k) + floor(n / 2k)
        """
        counts = {block: int((self.target == block).sum()) for block in range(1, len(self.blocks))}
        team = self.num_builders
        return {block: -(-count // team) + self.has_spare * (count // (2 * team)) for block, count in counts.items()}

    @cached_property
    def owners(self) -> NDArray[np.uint8]:
        """Builder that sets a cell if all do as much: of every block, from below; the last one clears the air."""
        owners = np.full(self.target.shape, self.num_builders - 1, np.uint8)
        for block in range(1, len(self.blocks)):
            shares = np.array_split(np.argwhere(self.target == block), self.num_builders)
            for builder, places in enumerate(shares):
                owners[tuple(places.T)] = builder
        owners.setflags(write=False)
        return owners

    @cached_property
    def rectangles(self) -> tuple[Fill, ...]:
        """Flat rectangles of one block that make up the house, those of air among them; by height."""
        shifted = cover(self.target + 1, self.box)
        return tuple(fill._replace(block=fill.block - 1) for fill in shifted)


@dataclass(frozen=True)
class HouseScore:
    """How a world compares with the house."""

    match: float  # share of all cells, air among them, that hold what they should
    coverage: float  # share of the cells where a block is wanted that hold that block
    redundancy: float  # share of the cells where air is wanted that hold a block
    iou: float  # cells where a block is wanted and one stands, of whatever kind / cells where either is so
    exact_iou: float  # the same, but counting above the line only blocks of the right kind
    damage: float  # what the spiders did, as a share of the hit points, at most 1
    num_kills: int  # commands against the spiders, in this turn

    @property
    def published(self) -> float:
        """The released code's reward, at most 1; an empty world has the share of air in the house.

            match - 0.1 damage

        Source: LLM_Collab_Minecraft, HouseBuild.
        """
        return self.match - 0.1 * self.damage

    @property
    def paper(self) -> float:
        """The reward as the paper's text is read, at most 2.

            2 coverage - 1.5 redundancy - 0.2 damage

        Source: arXiv:2601.21972, as a reproducer of it reads the text; the released code has the other one.
        """
        return 2.0 * self.coverage - 1.5 * self.redundancy - 0.2 * self.damage

    @property
    def strict(self) -> float:
        """A reward that pays nothing for nothing, at most 1: one command against the spiders is enough, more cost.

        exact_iou - 0.1 damage - 0.01 (num_kills - 1 if over 1)
        """
        return self.exact_iou - 0.1 * self.damage - 0.01 * max(0, self.num_kills - 1)


def score(house: House, world: World, *, attacks: tuple[int, ...], num_kills: int, is_safe: bool = False) -> HouseScore:
    """How a world compares with the house, and what the spiders did.

    Args:
        house: the task.
        world: what stands.
        attacks: the damage of each spider, in hit points.
        num_kills: commands against the spiders in this turn; one of them kills all.
        is_safe: whether the spiders were killed before.
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
    """The damage of each of an episode's spiders."""
    return tuple(rng.randint(*ATTACKS) for _ in range(NUM_SPIDERS))


def missing(house: House, world: World, builder: int) -> list[Fill]:
    """Fills with which a builder does its share of what the world lacks, within its stock; the last also clears."""
    is_own = (house.target != world) & (house.owners == builder)
    fills = cover(np.where(is_own, house.target, AIR).astype(np.uint8), house.box)
    to_clear = (is_own & (house.target == AIR)).astype(np.uint8)
    return [*(fill._replace(block=AIR) for fill in cover(to_clear, house.box)), *fills]


def wrong_cells(house: House, world: World) -> list[tuple[int, int, int, int]]:
    """Each cell that does not hold what it should, as (x, y, z, what it should hold)."""
    x, y, z = house.box.lower
    return [
        (cx + x, cy + y, cz + z, int(house.target[cy, cz, cx]))
        for cy, cz, cx in np.argwhere(house.target != world).tolist()
    ]


def rectangles_to_mend(house: House, world: World) -> list[Fill]:
    """The house's rectangles in which a cell is wrong."""
    x, y, z = house.box.lower
    is_wrong = house.target != world
    return [
        fill
        for fill in house.rectangles
        if is_wrong[fill.y1 - y, fill.z1 - z : fill.z2 - z + 1, fill.x1 - x : fill.x2 - x + 1].any()
    ]


def stock_left(house: House, fills: Sequence[Fill]) -> dict[int, int]:
    """What a builder's stock of each block still holds after its fills of a turn."""
    return {
        block: stock - sum(fill.volume for fill in fills if fill.block == block) for block, stock in house.stock.items()
    }


def affordable_rectangles(house: House, left: Mapping[int, int]) -> list[Fill]:
    """Rectangles to build with what is left of the stock: the largest first, then the largest part of one more."""
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
    """The task of a row in the benchmark's own form.

    Args:
        row: "task_id"; "inventory", a letter's block for each letter, air among them; "target_spec" with "layers", a
            list of {"y", "rows"}, rows by z, letters by x; and perhaps "bbox" with "from" and "to".
        num_builders: how many build it.
        has_spare: see `House`.

    Raises:
        ValueError: if it is not of this form; if a layer is missing, has another size than the others, or holds an
            unknown letter; or if the box does not fit.
    """
    name = str(row["task_id"])
    _refuse_other_form(name, row)
    inventory = {str(letter): str(block).removeprefix("minecraft:") for letter, block in row["inventory"].items()}
    air = next((letter for letter, block in inventory.items() if block in _AIR_NAMES), None)
    if air is None:
        raise ValueError(f"{name}: its inventory has no letter for air, only {inventory}")
    others = [letter for letter in inventory if letter != air]
    letters = "".join([air, *others])
    layers = sorted(row["target_spec"]["layers"], key=lambda layer: int(layer["y"]))
    heights = [int(layer["y"]) for layer in layers]
    grid = [[[letters.find(letter) for letter in line] for line in layer["rows"]] for layer in layers]
    sizes = {len(line) for layer in grid for line in layer}, {len(layer) for layer in grid}
    if heights != list(range(heights[0], heights[0] + len(heights))) or any(len(size) != 1 for size in sizes):
        raise ValueError(f"{name}: its layers must follow one another in y and be of one size; y is {heights}")
    if min(block for layer in grid for line in layer for block in line) < 0:
        raise ValueError(f"{name}: a layer holds a letter that is not in its inventory {letters!r}")
    target = read_only(np.array(grid, np.uint8))
    if not target.any():
        raise ValueError(f"{name}: nothing but air is wanted")
    corner = (row.get("bbox") or {}).get("from", [0, heights[0], 0])
    box = Box(target.shape[2], target.shape[0], target.shape[1], *(int(number) for number in corner))
    far_corner = (row.get("bbox") or {}).get("to", box.upper)
    if box.y != heights[0] or tuple(far_corner) != box.upper:
        raise ValueError(f"{name}: its bbox {row['bbox']} does not fit layers from {box.lower} to {box.upper}")
    blocks = ("air", *(inventory[letter] for letter in others))
    return House(name, blocks, letters, box, target, num_builders, has_spare=has_spare)


def _refuse_other_form(name: str, row: Mapping[str, Any]) -> None:
    """Raise, with what is wrong, where a row's values are not of the benchmark's types."""
    inventory, spec = row["inventory"], row["target_spec"]
    if not isinstance(inventory, Mapping):
        raise ValueError(f"{name}: inventory must map letters to blocks, got {inventory!r}")
    layers = spec.get("layers") if isinstance(spec, Mapping) else None
    if not isinstance(layers, list) or not layers:
        raise ValueError(f"{name}: target_spec must hold a list of layers, got {spec!r}")
    for layer in layers:
        rows = layer.get("rows") if isinstance(layer, Mapping) else None
        if not isinstance(rows, list) or not all(isinstance(line, str) for line in rows) or "y" not in layer:
            raise ValueError(f"{name}: a layer must hold a y and rows, a list of texts; got {layer!r}")


def _largest_part(fill: Fill, max_cells: int) -> Fill | None:
    """The largest part of a rectangle, from its lower corner, that has no more than so many cells."""
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
