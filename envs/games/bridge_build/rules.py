"""Rules of BridgeBuild: pure functions on immutable states, free of text and of the agent API.

Two workers, one on each bank, join S and T by planks and pillars. A true pillar (Y) wants a plank beside it, a false
one (N) must not have any; which is which shows only when it is probed.
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
MAX_COMMANDS = 40  # per turn, both workers together

_ALL = "#.STYN"
_KINDS = frozenset(_ALL)


@dataclass(frozen=True)
class Bridge(Shared):
    """A task: a map, its rows from the top; "#" land, "." water, S and T the ends, Y and N the pillars."""

    id: str
    rows: tuple[str, ...]
    difficulty: int | None = field(default=None, compare=False)  # of a generated one

    def __post_init__(self) -> None:
        kinds = {kind for row in self.rows for kind in row}
        if not self.rows or len({len(row) for row in self.rows}) != 1 or not kinds <= _KINDS:
            raise ValueError(f"{self.id}: a map is rows of one length, made of {''.join(sorted(_KINDS))}")
        if not {"S", "T"} <= kinds:
            raise ValueError(f"{self.id}: a map needs an S and a T, this one has only {''.join(sorted(kinds))}")

    @property
    def width(self) -> int:
        """Cells from left to right."""
        return len(self.rows[0])

    @property
    def depth(self) -> int:
        """Cells from top to bottom."""
        return len(self.rows)

    @cached_property
    def box(self) -> Box:
        """The map as a box one block high."""
        return Box(width=self.width, height=1, depth=self.depth)

    def cells(self, kinds: str) -> frozenset[Cell]:
        """Where the map has one of these kinds."""
        return frozenset((x, z) for z, row in enumerate(self.rows) for x, kind in enumerate(row) if kind in kinds)

    @cached_property
    def true_pillars(self) -> frozenset[Cell]:
        """Pillars that want a plank beside them."""
        return self.cells("Y")

    @cached_property
    def false_pillars(self) -> frozenset[Cell]:
        """Pillars that must not have one."""
        return self.cells("N")

    @cached_property
    def pillars(self) -> frozenset[Cell]:
        """All pillars; planks do not cover them, and the bridge may lead over any of them."""
        return self.true_pillars | self.false_pillars

    @cached_property
    def num_placeable(self) -> int:
        """Cells where a plank can be laid: all but the pillars."""
        return max(1, self.width * self.depth - len(self.pillars))

    @cached_property
    def plan(self) -> frozenset[Cell] | None:
        """Planks that score 0; None if this map has no such."""
        return _plan(self)

    @cached_property
    def sides(self) -> tuple[Box, Box]:
        """The part of the map on worker 0's bank and on worker 1's, cut half way from S to T.

        The cut is across x or z, whichever is longer from S to T; a line of cells in the middle is on both sides.
        """
        (x0, z0), (x1, z1) = min(self.cells("S")), min(self.cells("T"))
        is_along_z = abs(z1 - z0) >= abs(x1 - x0)
        first, second = (z0, z1) if is_along_z else (x0, x1)
        size = self.depth if is_along_z else self.width
        low, high = (first + second) // 2 + 1, -(-(first + second) // 2)  # where one ends, and the other begins
        parts = ((0, low), (high, size - high))
        boxes = [
            replace(self.box, z=start, depth=length) if is_along_z else replace(self.box, x=start, width=length)
            for start, length in (parts if first < second else parts[::-1])
        ]
        return boxes[0], boxes[1]


@dataclass(frozen=True, eq=False)
class State:
    """How far the workers have come."""

    world: World  # [0, z, x], 1 where a plank lies
    places: tuple[Cell, Cell]  # where the workers are
    visited: tuple[frozenset[Cell], frozenset[Cell]]  # where each has been
    probed: tuple[frozenset[Cell], frozenset[Cell]]  # what each has probed
    laid: frozenset[Cell] = frozenset()  # where a plank has ever been
    touched: frozenset[Cell] = frozenset()  # pillars that have ever had a plank beside them


@dataclass(frozen=True)
class Action:
    """What one worker does in a turn, as far as it is legal."""

    fills: tuple[Fill, ...] = ()
    probes: tuple[Cell, ...] = ()
    walk: tuple[Cell, ...] = ()  # from where it is; empty: it stays
    num_words: int = 0  # in its message
    num_rejected: int = 0  # commands that are not legal


@dataclass(frozen=True)
class BridgeScore:
    """A turn's result."""

    num_false_touched: int
    num_true_untouched: int
    is_connected: bool
    num_probes: int
    num_words: int
    num_true_new: int  # true pillars that have a plank beside them for the first time
    num_false_new: int
    has_joined: bool  # whether S and T were apart before
    share_laid: float  # cells that hold a plank for the first time / cells where one could be laid

    @property
    def priced(self) -> float:
        """A reward in which planks cost: nothing for nothing, and most for the fewest in the right places.

            5 for a true pillar with a plank beside it for the first time, -8 for a false one, 10 when S and T are
            joined, -5 times the share of all cells that a plank is laid in for the first time, -0.3 per probe, -0.001
            per token of a message

        Source: LLM_Collab_Minecraft at ef56a8e, which describes BridgeBuild so; what it counts once a turn counts here
        once an episode, so that nothing is earned by taking away and laying again.
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
        """The published reward, at most 0; planks cost nothing, so that covering the whole map gets most of it.

            -1 for a false pillar with a plank beside it, -2 for a true one without, -5 while S and T are apart,
            -0.3 per probe, -0.001 per token of a message

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
    """Worker 0 at S, worker 1 at T, nothing built."""
    places = min(bridge.cells("S")), min(bridge.cells("T"))
    visited = frozenset({places[0]}), frozenset({places[1]})
    return State(bridge.box.empty_world(), places, visited, (frozenset(), frozenset()))


def after(bridge: Bridge, state: State, actions: Sequence[Action]) -> tuple[State, BridgeScore]:
    """The state after both workers acted, worker 0's commands first, and what the turn is worth."""
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
    touched = {pillar for pillar in bridge.pillars if _is_touched(pillar, planks)}
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
    """Where planks lie."""
    return frozenset((x, z) for z, row in enumerate(world[0].tolist()) for x, block in enumerate(row) if block)


def is_connected(bridge: Bridge, planks: frozenset[Cell]) -> bool:
    """Whether S and T are joined, side by side, by planks and pillars; land does not carry."""
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
    """The cells that a worker has come near to."""
    return seen_from(state.visited[worker], view, bridge.width, bridge.depth)


def missing(bridge: Bridge, state: State, worker: int) -> list[Fill]:
    """What one worker has to do so that the plan lies: of the changes, from the top, worker 0 does the first half."""
    changes = _changes(bridge, state, bridge.cells(_ALL))
    half = (len(changes) + 1) // 2
    return changes[half:] if worker else changes[:half]


def missing_on_side(bridge: Bridge, state: State, side: int) -> list[Fill]:
    """The changes on one side of the map; cells on both sides count as the first one's."""
    first = frozenset((x, z) for x, z in bridge.cells(_ALL) if bridge.sides[0].contains(x, 0, z))
    return _changes(bridge, state, bridge.cells(_ALL) - first if side else first)


def _changes(bridge: Bridge, state: State, where: frozenset[Cell]) -> list[Fill]:
    """Fills that make these cells what they are in the plan: what is too many goes first."""
    plan = bridge.plan or frozenset()
    planks = plank_cells(state.world)
    return [
        fill._replace(block=block)
        for cells, block in ((planks - plan, AIR), (plan - planks, PLANK))
        for fill in cover(_world(bridge, cells & where), bridge.box)
    ]


def _is_touched(pillar: Cell, planks: frozenset[Cell]) -> bool:
    return any(cell in planks for cell in neighbours(pillar))


def _world(bridge: Bridge, cells: frozenset[Cell]) -> World:
    return built(bridge.box.empty_world(), bridge.box, [Fill(x, 0, z, x, 0, z, PLANK) for x, z in cells])


def _plan(bridge: Bridge) -> frozenset[Cell] | None:
    """The fewest planks that join S and T without touching a false pillar, and one for each true pillar still bare.

    Planks beside a pillar need not be joined to the bridge, so the two parts can be found one after the other, and
    together they score 0 exactly if that is possible.
    """
    clean = {
        (x, z)
        for x in range(bridge.width)
        for z in range(bridge.depth)
        if (x, z) not in bridge.pillars and not any(cell in bridge.false_pillars for cell in neighbours((x, z)))
    }
    bridge_cells = _cheapest_way(bridge, clean)
    if bridge_cells is None:
        return None
    planks = set(bridge_cells)
    for pillar in sorted(bridge.true_pillars):
        if not _is_touched(pillar, frozenset(planks)):
            beside = [cell for cell in neighbours(pillar) if cell in clean]
            if not beside:
                return None
            planks.add(max(beside, key=lambda cell: (len(bridge.true_pillars & set(neighbours(cell))), cell)))
    return frozenset(planks)


def _cheapest_way(bridge: Bridge, clean: set[Cell]) -> list[Cell] | None:
    """The planks of the way from S to T that needs fewest; pillars and ends cost nothing."""
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
