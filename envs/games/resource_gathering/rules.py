"""Rules of ResourceGathering: pure functions on immutable states, free of text and of the agent API.

Two gatherers with different tools, the first for wood, the second for stone and iron, walk a map in the fog. Whatever
lies within reach where a walk ends, and fits the tools, is gathered. What one needs, the other often sees first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from ..fog import Cell, is_on_map, seen_from, straight_walk
from ..sources import Shared

RESOURCES = ("wood", "stone", "iron")
TOOLS = (("wood",), ("stone", "iron"))  # what each gatherer can take

Amounts = tuple[int, int, int]
"""How much wood, stone and iron."""


@dataclass(frozen=True)
class Land(Shared):
    """A task: where things lie, where the gatherers begin, and how much is wanted of each thing."""

    id: str
    width: int
    depth: int
    lies: Mapping[Cell, Amounts]
    starts: tuple[Cell, Cell]
    goal: Amounts  # at least 1 of each
    difficulty: int | None = field(default=None, compare=False)  # of a generated one

    def __post_init__(self) -> None:
        cells = [*self.lies, *self.starts]
        if not all(is_on_map(cell, self.width, self.depth) for cell in cells) or min(self.goal) < 1:
            raise ValueError(f"{self.id}: everything must lie on the map, and the goal be over 0, got {self.goal}")

    @cached_property
    def cells(self) -> tuple[Cell, ...]:
        """Every cell of the map."""
        return tuple((x, z) for z in range(self.depth) for x in range(self.width))


@dataclass(frozen=True)
class Fact:
    """One thing that lies somewhere."""

    cell: Cell
    resource: str
    amount: int


@dataclass(frozen=True)
class State:
    """How far the gatherers have come."""

    lies: Mapping[Cell, Amounts]
    places: tuple[Cell, Cell]
    visited: tuple[frozenset[Cell], frozenset[Cell]]
    told: tuple[tuple[Fact, ...], tuple[Fact, ...]]  # what each was told
    gathered: Amounts
    has_entered: tuple[bool, bool]  # whether each has been where there is work for it
    helped: tuple[float, float] = (0.0, 0.0)  # how useful all was that each has told, at most 1


@dataclass(frozen=True)
class Settings:
    """Numbers of the game."""

    view: int = 3  # cells seen in each direction
    reach: int = 1  # cells, along x and z together, within which things are gathered
    max_steps: int = 4  # steps of a walk
    max_facts: int = 1  # facts that may be told per turn


@dataclass(frozen=True)
class TurnScore:
    """What a turn is worth."""

    progress: float  # gained, of the mean share of the three goals
    is_completed: bool  # whether the last goal was reached in this turn
    num_steps_closer: int  # to where there is work, both gatherers together
    num_entries: int  # gatherers who came there for the first time
    usefulness: float  # what was told: for each gatherer the share of what the partner still needs, at most 1
    approach: int  # how much less far the gatherers are from work, in what is work for them now
    new_usefulness: float  # of the usefulness, what brings a gatherer's sum over the episode no higher than 1

    @property
    def bounded(self) -> float:
        """A reward of which no part grows with the number of turns.

            10 progress + 4 if completed + 0.05 approach + 0.15 entries + 0.1 new usefulness

        The approach is the difference of a potential, minus the steps to work: over an episode it adds up to what the
        gatherers were away at first, less what they are away at last, whatever way they went.
        """
        return (
            10.0 * self.progress
            + 4.0 * self.is_completed
            + 0.05 * self.approach
            + 0.15 * self.num_entries
            + 0.1 * self.new_usefulness
        )

    @property
    def published(self) -> float:
        """The published reward; it charges no step away, so that to and fro pays.

            10 progress + 4 if completed + 0.05 steps closer + 0.15 entries + 0.1 usefulness

        Source: LLM_Collab_Minecraft, ResourceGathering.
        """
        return (
            10.0 * self.progress
            + 4.0 * self.is_completed
            + 0.05 * self.num_steps_closer
            + 0.15 * self.num_entries
            + 0.1 * self.usefulness
        )


def beginning(land: Land, settings: Settings) -> State:
    """Both at their starts, nothing gathered yet."""
    first, second = land.starts
    state = State(
        land.lies, land.starts, (frozenset({first}), frozenset({second})), ((), ()), (0, 0, 0), (False, False)
    )
    zones = [work_zone(land, state, gatherer, settings) for gatherer in (0, 1)]
    return replace(state, has_entered=(first in zones[0], second in zones[1]))


def after(
    land: Land,
    state: State,
    walks: Sequence[Sequence[Cell]],
    facts: Sequence[Sequence[Fact]],
    settings: Settings,
) -> tuple[State, TurnScore]:
    """The state after both have walked, gathered and told, and what the turn is worth.

    Args:
        land: the task.
        state: before the turn.
        walks: the cells of each gatherer's walk, the first one where it is.
        facts: what each tells the other; see `true_facts`.
        settings: numbers of the game.
    """
    zones = [work_zone(land, state, gatherer, settings) for gatherer in (0, 1)]
    places = (walks[0][-1], walks[1][-1])
    closer = entries = 0
    entered = list(state.has_entered)
    for gatherer, zone in enumerate(zones):
        if zone:
            before, now = (_distance(place, zone) for place in (state.places[gatherer], places[gatherer]))
            closer += max(0, before - now)
            entries += now == 0 and before > 0 and not entered[gatherer]
            entered[gatherer] |= now == 0
    lies = dict(state.lies)
    gathered = list(state.gathered)
    for gatherer in (0, 1):
        for cell in _within_reach(places[gatherer], lies, settings.reach):
            amounts = list(lies[cell])
            for kind in _tools(gatherer):
                gathered[kind] += amounts[kind]
                amounts[kind] = 0
            lies[cell] = (amounts[0], amounts[1], amounts[2])
    later = State(
        lies={cell: amounts for cell, amounts in lies.items() if any(amounts)},
        places=places,
        visited=(state.visited[0] | set(walks[0]), state.visited[1] | set(walks[1])),
        told=((*state.told[0], *facts[1]), (*state.told[1], *facts[0])),
        gathered=(gathered[0], gathered[1], gathered[2]),
        has_entered=(entered[0], entered[1]),
        helped=state.helped,
    )
    useful = [usefulness(land, state, teller, facts[teller], settings) for teller in (0, 1)]
    first, second = (min(1.0, before + now) for before, now in zip(state.helped, useful, strict=True))
    later = replace(later, helped=(first, second))
    return later, TurnScore(
        progress=progress(land, later) - progress(land, state),
        is_completed=is_completed(land, later) and not is_completed(land, state),
        num_steps_closer=closer,
        num_entries=entries,
        usefulness=sum(useful),
        approach=steps_to_work(land, state, settings) - steps_to_work(land, later, settings),
        new_usefulness=first + second - sum(state.helped),
    )


def steps_to_work(land: Land, state: State, settings: Settings) -> int:
    """How far the gatherers are from where there is work for them, both together; 0 for whom there is none."""
    zones = [work_zone(land, state, gatherer, settings) for gatherer in (0, 1)]
    return sum(_distance(place, zone) for place, zone in zip(state.places, zones, strict=True) if zone)


def progress(land: Land, state: State) -> float:
    """The mean share of the three goals that is reached, 0 to 1."""
    return sum(min(1.0, has / wants) for has, wants in zip(state.gathered, land.goal, strict=True)) / len(RESOURCES)


def is_completed(land: Land, state: State) -> bool:
    """Whether enough of everything is gathered."""
    return all(has >= wants for has, wants in zip(state.gathered, land.goal, strict=True))


def still_wanted(land: Land, state: State, gatherer: int) -> dict[str, int]:
    """What a gatherer can take and how much of it is still wanted."""
    left = {kind: land.goal[kind] - state.gathered[kind] for kind in _tools(gatherer)}
    return {RESOURCES[kind]: amount for kind, amount in left.items() if amount > 0}


def visible(land: Land, state: State, gatherer: int, settings: Settings) -> frozenset[Cell]:
    """The cells that a gatherer has come near to; it sees what lies there now."""
    return seen_from(state.visited[gatherer], settings.view, land.width, land.depth)


def true_facts(
    land: Land, state: State, teller: int, claims: Sequence[tuple[Cell, str]], settings: Settings
) -> list[Fact]:
    """The claims of a gatherer that it can see to be so; only facts are passed on, each once, up to the limit."""
    seen = visible(land, state, teller, settings)
    facts: list[Fact] = []
    for cell, resource in dict.fromkeys(claims):
        amount = state.lies.get(cell, (0, 0, 0))[RESOURCES.index(resource)] if resource in RESOURCES else 0
        if cell in seen and amount and len(facts) < settings.max_facts:
            facts.append(Fact(cell, resource, amount))
    return facts


def usefulness(land: Land, state: State, teller: int, facts: Sequence[Fact], settings: Settings) -> float:
    """How much of what the partner still needs it is told of, and did not know; 0 to 1."""
    partner = 1 - teller
    wanted = still_wanted(land, state, partner)
    seen = visible(land, state, partner, settings)
    known = {(fact.cell, fact.resource) for fact in state.told[partner]}
    new = [
        fact
        for fact in facts
        if fact.resource in wanted and fact.cell not in seen and (fact.cell, fact.resource) not in known
    ]
    return min(1.0, sum(min(1.0, fact.amount / wanted[fact.resource]) for fact in new))


def work_zone(land: Land, state: State, gatherer: int, settings: Settings) -> frozenset[Cell]:
    """The cells from which a gatherer could take something that is still wanted."""
    kinds = [RESOURCES.index(resource) for resource in still_wanted(land, state, gatherer)]
    places = [cell for cell, amounts in state.lies.items() if any(amounts[kind] for kind in kinds)]
    reach = settings.reach
    return frozenset(
        (x + dx, z + dz)
        for x, z in places
        for dx in range(-reach, reach + 1)
        for dz in range(abs(dx) - reach, reach - abs(dx) + 1)
        if is_on_map((x + dx, z + dz), land.width, land.depth)
    )


def gathering_walk(land: Land, state: State, gatherer: int, settings: Settings) -> tuple[Cell, ...]:
    """Walk to where most of what is wanted can be taken at once, else towards work."""
    start = state.places[gatherer]
    zone = work_zone(land, state, gatherer, settings)
    if not zone:
        return (start,)
    wanted = {RESOURCES.index(resource): left for resource, left in still_wanted(land, state, gatherer).items()}

    def gain(place: Cell) -> float:
        heap = [state.lies[cell] for cell in _within_reach(place, state.lies, settings.reach)]
        return sum(min(left, sum(amounts[kind] for amounts in heap)) / land.goal[kind] for kind, left in wanted.items())

    near = [cell for cell in sorted(zone) if _steps(start, cell) <= settings.max_steps]
    end = max(near, key=lambda cell: (gain(cell), -_steps(start, cell))) if near else None
    if end is None:
        end = min(sorted(zone), key=lambda cell: (_steps(start, cell), -gain(cell)))
    return straight_walk(start, end, settings.max_steps)


def _tools(gatherer: int) -> list[int]:
    return [RESOURCES.index(resource) for resource in TOOLS[gatherer]]


def _within_reach(place: Cell, lies: Mapping[Cell, Amounts], reach: int) -> list[Cell]:
    return [cell for cell in lies if _apart(cell, place) <= reach]


def _distance(place: Cell, zone: frozenset[Cell]) -> int:
    return min(_apart(place, cell) for cell in zone)


def _apart(one: Cell, other: Cell) -> int:
    return abs(one[0] - other[0]) + abs(one[1] - other[1])


def _steps(one: Cell, other: Cell) -> int:
    return max(abs(one[0] - other[0]), abs(one[1] - other[1]))
