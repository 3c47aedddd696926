"""Rules of BridgeBuild: pure functions on immutable states.

Two workers join S and T by planks and pillars. A true pillar (Y) needs a plank in a neighbouring cell, a false pillar
(N) must not have one. Only a probe shows the kind of a pillar.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from ..blocks import AIR, Box, Fill, World, built, cover, read_only
from ..fog import Cell, is_on_map, neighbours, seen_from
from ..sources import Shared, Split, generated_split, is_held_out, refuse_difficulty

BLOCKS = ("air", "oak_planks")
PLANK = 1
MAX_COMMANDS = 40  # maximum per turn of both workers together

_ALL = "#.STYN"
_KINDS = frozenset(_ALL)


@dataclass(frozen=True)
class Bridge(Shared):
    """Task: the rows of a map. "#" is land, "." water, "S" and "T" the ends, "Y" true and "N" false pillars."""

    id: str
    rows: tuple[str, ...]
    difficulty: int | None = field(default=None, compare=False)  # None: the map is not generated

    def __post_init__(self) -> None:
        kinds = {kind for row in self.rows for kind in row}
        if not self.rows or len({len(row) for row in self.rows}) != 1 or not kinds <= _KINDS:
            raise ValueError(
                f"{self.id}: map must have rows of one length with the characters {''.join(sorted(_KINDS))}"
            )
        if not {"S", "T"} <= kinds:
            raise ValueError(f"{self.id}: map must contain S and T, got {''.join(sorted(kinds))}")

    @property
    def width(self) -> int:
        return len(self.rows[0])

    @property
    def depth(self) -> int:
        return len(self.rows)

    @cached_property
    def box(self) -> Box:
        return Box(width=self.width, height=1, depth=self.depth)

    def cells(self, kinds: str) -> frozenset[Cell]:
        return frozenset((x, z) for z, row in enumerate(self.rows) for x, kind in enumerate(row) if kind in kinds)

    @cached_property
    def true_pillars(self) -> frozenset[Cell]:
        return self.cells("Y")

    @cached_property
    def false_pillars(self) -> frozenset[Cell]:
        return self.cells("N")

    @cached_property
    def pillars(self) -> frozenset[Cell]:
        """Cells of all pillars. Pillars are parts of the bridge, and planks cannot replace them."""
        return self.true_pillars | self.false_pillars

    @cached_property
    def num_placeable(self) -> int:
        return max(1, self.width * self.depth - len(self.pillars))

    @cached_property
    def plan(self) -> frozenset[Cell] | None:
        """Cells of planks with which the published score is 0. None: no such planks exist.

        The plan has the fewest planks that join S and T away from false pillars, and one plank beside each other true
        pillar. Planks beside a pillar need no connection to the bridge, so the two parts are independent.
        """
        clean = {
            (x, z)
            for x in range(self.width)
            for z in range(self.depth)
            if (x, z) not in self.pillars and self.false_pillars.isdisjoint(neighbours((x, z)))
        }
        bridge_cells = _cheapest_way(self, clean)
        if bridge_cells is None:
            return None
        planks = set(bridge_cells)
        for pillar in sorted(self.true_pillars):
            if planks.isdisjoint(neighbours(pillar)):
                beside = [cell for cell in neighbours(pillar) if cell in clean]
                if not beside:
                    return None
                planks.add(max(beside, key=lambda cell: (len(self.true_pillars & set(neighbours(cell))), cell)))
        return frozenset(planks)

    @cached_property
    def sides(self) -> tuple[Box, Box]:
        """Half of the map on the side of worker 0, and half on the side of worker 1.

        The cut is halfway from S to T along the longer axis. A middle line of cells belongs to both halves.
        """
        (x0, z0), (x1, z1) = min(self.cells("S")), min(self.cells("T"))
        is_along_z = abs(z1 - z0) >= abs(x1 - x0)
        first, second = (z0, z1) if is_along_z else (x0, x1)
        size = self.depth if is_along_z else self.width
        low, high = (first + second) // 2 + 1, -(-(first + second) // 2)  # end of one half, begin of the other
        parts = ((0, low), (high, size - high))
        boxes = [
            replace(self.box, z=start, depth=length) if is_along_z else replace(self.box, x=start, width=length)
            for start, length in (parts if first < second else parts[::-1])
        ]
        return boxes[0], boxes[1]


@dataclass(frozen=True, eq=False)
class State:
    world: World  # [0, z, x], 1 for a plank
    places: tuple[Cell, Cell]  # cell of each worker
    visited: tuple[frozenset[Cell], frozenset[Cell]]  # cells that each worker has visited
    probed: tuple[frozenset[Cell], frozenset[Cell]]  # cells that each worker has probed
    laid: frozenset[Cell] = frozenset()  # cells that have ever had a plank
    touched: frozenset[Cell] = frozenset()  # pillars that have ever had a neighbouring plank


@dataclass(frozen=True)
class Action:
    """Legal action of one worker in a turn."""

    fills: tuple[Fill, ...] = ()
    probes: tuple[Cell, ...] = ()
    walk: tuple[Cell, ...] = ()  # cells, beginning with the worker's place; empty: the worker stays
    num_words: int = 0  # length of the message
    num_rejected: int = 0  # number of illegal commands


@dataclass(frozen=True)
class BridgeScore:
    """Numbers from which the reward of a turn is computed."""

    num_false_touched: int
    num_true_untouched: int
    is_connected: bool
    num_probes: int
    num_words: int
    num_true_new: int  # true pillars with their first neighbouring plank
    num_false_new: int
    has_joined: bool  # S and T were joined in this turn
    share_laid: float  # cells with their first plank / cells without a pillar

    @property
    def priced(self) -> float:
        """Reward in which planks cost points.

        Source: LLM_Collab_Minecraft at ef56a8e. Here each event is rewarded once per episode, so that removing planks
        and laying them again does not change the return.
        """
        return (
            5.0 * self.num_true_new
            - 8.0 * self.num_false_new
            + 10.0 * self.has_joined
            - 5.0 * self.share_laid
            - 0.3 * self.num_probes
            - 0.001 * self.num_words
        )

    @property
    def published(self) -> float:
        """Published reward, at most 0. Planks are free, so a team that covers the whole map gets a high reward.

        Source: LLM_Collab_Minecraft at 2266e97, BridgeBuild.
        """
        return (
            0.0
            - self.num_false_touched
            - 2.0 * self.num_true_untouched
            - 5.0 * (not self.is_connected)
            - 0.3 * self.num_probes
            - 0.001 * self.num_words
        )


def beginning(bridge: Bridge) -> State:
    """Return the first state: worker 0 at S, worker 1 at T."""
    places = min(bridge.cells("S")), min(bridge.cells("T"))
    visited = frozenset({places[0]}), frozenset({places[1]})
    return State(bridge.box.empty_world(), places, visited, (frozenset(), frozenset()))


def after(bridge: Bridge, state: State, actions: Sequence[Action]) -> tuple[State, BridgeScore]:
    """Play a turn. Return the new state and the score. Worker 0's commands are carried out first."""
    first, second = actions
    world = built(state.world, bridge.box, (*first.fills, *second.fills)).copy()
    for x, z in bridge.pillars:
        world[0, z, x] = AIR
    places = tuple(
        action.walk[-1] if action.walk else place for action, place in zip(actions, state.places, strict=True)
    )
    visited = tuple(been | set(action.walk) for action, been in zip(actions, state.visited, strict=True))
    probed = tuple(known | set(action.probes) for action, known in zip(actions, state.probed, strict=True))
    world = read_only(world)
    planks = plank_cells(world)
    touched = {pillar for pillar in bridge.pillars if not planks.isdisjoint(neighbours(pillar))}
    later = replace(
        state,
        world=world,
        laid=state.laid | planks,
        touched=state.touched | touched,
        places=(places[0], places[1]),
        visited=(visited[0], visited[1]),
        probed=(probed[0], probed[1]),
    )
    was_connected = is_connected(bridge, plank_cells(state.world))
    return later, BridgeScore(
        num_false_touched=len(touched & bridge.false_pillars),
        num_true_untouched=len(bridge.true_pillars - touched),
        is_connected=is_connected(bridge, planks),
        num_probes=len(first.probes) + len(second.probes),
        num_words=first.num_words + second.num_words,
        num_true_new=len((touched - state.touched) & bridge.true_pillars),
        num_false_new=len((touched - state.touched) & bridge.false_pillars),
        has_joined=is_connected(bridge, planks) and not was_connected,
        share_laid=len(planks - state.laid) / bridge.num_placeable,
    )


def plank_cells(world: World) -> frozenset[Cell]:
    return frozenset((x, z) for z, row in enumerate(world[0].tolist()) for x, block in enumerate(row) if block)


def is_connected(bridge: Bridge, planks: frozenset[Cell]) -> bool:
    """Return True if planks and pillars that touch along their sides join S and T. Land does not connect cells."""
    ends = bridge.cells("T")
    open_cells = planks | bridge.pillars | bridge.cells("ST")
    seen = set(bridge.cells("S"))
    todo = deque(seen)
    while todo:
        cell = todo.popleft()
        if cell in ends:
            return True
        for step in neighbours(cell):
            if step in open_cells and step not in seen:
                seen.add(step)
                todo.append(step)
    return False


def visible(bridge: Bridge, state: State, worker: int, view: int) -> frozenset[Cell]:
    """Return the cells that a worker sees: all cells near the cells that it has visited."""
    return seen_from(state.visited[worker], view, bridge.width, bridge.depth)


def missing(bridge: Bridge, state: State, worker: int) -> list[Fill]:
    """Return one worker's half of the fills that turn the world into the plan. The first half is the upper one."""
    changes = _changes(bridge, state, bridge.cells(_ALL))
    half = (len(changes) + 1) // 2
    return changes[half:] if worker else changes[:half]


def missing_on_side(bridge: Bridge, state: State, side: int) -> list[Fill]:
    """Return the fills that turn one half of the map into the plan. Middle cells belong to the first half."""
    first = frozenset((x, z) for x, z in bridge.cells(_ALL) if bridge.sides[0].contains(x, 0, z))
    return _changes(bridge, state, bridge.cells(_ALL) - first if side else first)


def _changes(bridge: Bridge, state: State, where: frozenset[Cell]) -> list[Fill]:
    """Return the fills that turn these cells into the plan. Planks are removed first."""
    plan = bridge.plan or frozenset()
    planks = plank_cells(state.world)
    changes: list[Fill] = []
    for cells, block in ((planks - plan, AIR), (plan - planks, PLANK)):
        marks = [Fill(x, 0, z, x, 0, z, PLANK) for x, z in cells & where]
        covering = cover(built(bridge.box.empty_world(), bridge.box, marks), bridge.box)
        changes += [fill._replace(block=block) for fill in covering]
    return changes


def _cheapest_way(bridge: Bridge, clean: set[Cell]) -> list[Cell] | None:
    """Return the planks of the path from S to T with the fewest planks. Pillars, S and T need no plank."""
    free = bridge.pillars | bridge.cells("ST")
    ends = bridge.cells("T")
    came_from: dict[Cell, Cell | None] = dict.fromkeys(sorted(bridge.cells("S")))
    cost = dict.fromkeys(came_from, 0)
    todo = deque(came_from)
    while todo:
        cell = todo.popleft()
        for step in neighbours(cell):
            is_open = is_on_map(step, bridge.width, bridge.depth) and (step in free or step in clean)
            price = cost[cell] + (step not in free)
            if is_open and price < cost.get(step, price + 1):
                cost[step], came_from[step] = price, cell
                if step in free:
                    todo.appendleft(step)
                else:
                    todo.append(step)
    reached = [end for end in sorted(ends) if end in cost]
    if not reached:
        return None
    way: list[Cell] = []
    place: Cell | None = min(reached, key=lambda end: cost[end])
    while place is not None:
        if place not in free:
            way.append(place)
        place = came_from[place]
    return way


HIGHEST_DIFFICULTY = 5
DEPTH = 13  # rows; with the default view a worker never sees the whole far half


def new_bridge(seed: int, difficulty: int = 3, split: Split = "train") -> Bridge:
    """Generate a map from a seed. On each map, the maximum published score, 0, is possible.

    Args:
        seed: any integer; the same seed gives the same map.
        difficulty: 1 (7 cells wide, 4 true and 6 false pillars) to 5 (11 cells wide, 8 true and 14 false pillars).
        split: "train" or "test", which share no map.
    """
    refuse_difficulty(difficulty, HIGHEST_DIFFICULTY)
    part = generated_split(split)
    rng = random.Random(f"bridge {part} {difficulty} {seed}")
    while True:
        bridge = Bridge(f"{part}-{difficulty}-{seed}", _drawn(rng, difficulty), difficulty)
        if is_held_out("\n".join(bridge.rows)) == (part == "test") and _is_solvable(bridge):
            return bridge


def _drawn(rng: random.Random, difficulty: int) -> tuple[str, ...]:
    width, num_true, num_false = 7 + difficulty // 2 * 2, 3 + difficulty, 4 + 2 * difficulty
    start, end = (rng.randrange(width // 3, width - width // 3) for _ in range(2))
    grid = [["."] * width for _ in range(DEPTH)]
    grid[0], grid[-1] = ["#"] * width, ["#"] * width
    grid[0][start], grid[-1][end] = "S", "T"
    water = [(x, z) for z in range(1, DEPTH - 1) for x in range(width)]
    # Pillars may be anywhere in the water, so that no fixed path is safe.
    for number, (x, z) in enumerate(rng.sample(water, num_true + num_false)):
        grid[z][x] = "Y" if number < num_true else "N"
    return tuple("".join(row) for row in grid)


def _is_solvable(bridge: Bridge) -> bool:
    if bridge.plan is None or is_connected(bridge, frozenset()):
        return False
    state = beginning(bridge)
    return all(len(missing_on_side(bridge, state, side)) <= MAX_COMMANDS // 2 for side in (0, 1))
