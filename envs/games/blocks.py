"""Worlds of blocks: pure functions on read-only arrays of bytes.

A world has the axes [y, z, x]: height, depth, width. 0 is air; another number is the index of a block in the game's
list. Cells are written (x, y, z), as in Minecraft's commands.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

World = NDArray[np.uint8]
AIR = 0


class Fill(NamedTuple):
    """Command that fills a cuboid with one kind of block. Both corners are inside; the first is the lower corner."""

    x1: int
    y1: int
    z1: int
    x2: int
    y2: int
    z2: int
    block: int

    @property
    def volume(self) -> int:
        return (self.x2 - self.x1 + 1) * (self.y2 - self.y1 + 1) * (self.z2 - self.z1 + 1)


@dataclass(frozen=True)
class Box:
    """Box in which blocks may be placed."""

    width: int
    height: int
    depth: int
    x: int = 0  # x, y and z: lower corner
    y: int = 0
    z: int = 0

    @property
    def lower(self) -> tuple[int, int, int]:
        """Cell (x, y, z) inside the box with the lowest coordinates."""
        return self.x, self.y, self.z

    @property
    def upper(self) -> tuple[int, int, int]:
        """Cell (x, y, z) inside the box with the highest coordinates."""
        return self.x + self.width - 1, self.y + self.height - 1, self.z + self.depth - 1

    def contains(self, x: int, y: int, z: int) -> bool:
        return 0 <= x - self.x < self.width and 0 <= y - self.y < self.height and 0 <= z - self.z < self.depth

    def empty_world(self) -> World:
        return read_only(np.zeros((self.height, self.depth, self.width), np.uint8))


def read_only(world: World) -> World:
    world.setflags(write=False)
    return world


def built(world: World, box: Box, fills: Iterable[Fill]) -> World:
    """Return a new world in which the fills are carried out in order. A later fill replaces an earlier one."""
    after = world.copy()
    dx, dy, dz = box.lower
    for x1, y1, z1, x2, y2, z2, block in fills:
        if x1 == x2 and y1 == y2 and z1 == z2:
            after[y1 - dy, z1 - dz, x1 - dx] = block
            continue
        after[y1 - dy : y2 - dy + 1, z1 - dz : z2 - dz + 1, x1 - dx : x2 - dx + 1] = block
    return read_only(after)


def cells(world: World, box: Box) -> Iterator[tuple[int, int, int, int]]:
    """Yield (x, y, z, block) of each cell that is not air, ordered by y, z and x."""
    for y, z, x in np.argwhere(world).tolist():
        yield x + box.x, y + box.y, z + box.z, int(world[y, z, x])


def cover(world: World, box: Box) -> list[Fill]:
    """Return fills (cuboids of height 1) that build a world from air. Equal runs along x are joined along z."""
    fills: list[Fill] = []
    for y in range(world.shape[0]):
        open_runs: dict[tuple[int, int, int], int] = {}  # maps (first x, last x, block) to the first z
        for z in range(world.shape[1] + 1):
            runs = _runs(world[y, z].tolist()) if z < world.shape[1] else []
            for x1, x2, block in [run for run in open_runs if run not in runs]:
                begin = open_runs.pop((x1, x2, block))
                fills.append(Fill(x1 + box.x, y + box.y, begin + box.z, x2 + box.x, y + box.y, z - 1 + box.z, block))
            for run in runs:
                open_runs.setdefault(run, z)
    return fills


def _runs(row: list[int]) -> list[tuple[int, int, int]]:
    """Return (first, last, block) of each run of equal blocks in a row, without air."""
    runs = []
    first = 0
    for x in range(1, len(row) + 1):
        if x == len(row) or row[x] != row[first]:
            if row[first] != AIR:
                runs.append((first, x - 1, row[first]))
            first = x
    return runs
