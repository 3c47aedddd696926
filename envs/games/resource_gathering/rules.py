"""Rules of ResourceGathering: pure functions on immutable states.

Two gatherers see only a part of a map. The first takes wood, the second stone and iron. At the end of a walk, a
gatherer takes everything within reach that fits its tools.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

from ..fog import Cell, is_on_map, seen_from, straight_walk
from ..sources import Shared

RESOURCES = ("wood", "stone", "iron")
TOOLS = (("wood",), ("stone", "iron"))  # resources that each gatherer can take

Reward = Literal["bounded", "reference", "progress"]
Amounts = tuple[int, int, int]  # amounts of wood, stone and iron


@dataclass(frozen=True)
class Land(Shared):
    """Task: a map with its resources, the starts of the gatherers, and the goal."""

    id: str
    width: int
    depth: int
    lies: Mapping[Cell, Amounts]
    starts: tuple[Cell, Cell]
    goal: Amounts  # amounts to gather, at least 1 of each resource
    difficulty: int | None = field(default=None, compare=False)  # None: the map is not generated

    def __post_init__(self) -> None:
        cells = [*self.lies, *self.starts]
        if not all(is_on_map(cell, self.width, self.depth) for cell in cells) or min(self.goal) < 1:
            raise ValueError(f"{self.id}: all cells must be on the map, and goal={self.goal} at least 1 per resource")

    @cached_property
    def cells(self) -> tuple[Cell, ...]:
        return tuple((x, z) for z in range(self.depth) for x in range(self.width))


@dataclass(frozen=True)
class Fact:
    """Message of a gatherer to its partner: the amount of a resource in a cell."""

    cell: Cell
    resource: str
    amount: int


@dataclass(frozen=True)
class State:
    lies: Mapping[Cell, Amounts]  # remaining resources of each cell
    places: tuple[Cell, Cell]  # cell of each gatherer
    visited: tuple[frozenset[Cell], frozenset[Cell]]
    told: tuple[tuple[Fact, ...], tuple[Fact, ...]]  # facts that each gatherer received
    gathered: Amounts
    has_entered: tuple[bool, bool]  # True for gatherers that have been in their work zone
    helped: tuple[float, float] = (0.0, 0.0)  # usefulness of all facts that each gatherer has sent, at most 1


@dataclass(frozen=True)
class Settings:
    view: int = 3  # cells seen in each direction
    reach: int = 1  # Manhattan distance within which resources are taken
    max_steps: int = 4  # maximum number of steps per walk
    max_facts: int = 1  # maximum number of facts per turn and gatherer


@dataclass(frozen=True)
class TurnScore:
    """Numbers from which the reward of a turn is computed."""

    progress: float  # increase of the gathered fraction of the goal
    is_completed: bool  # the goal was completed in this turn
    num_steps_closer: int  # steps towards the work zones, sum of both gatherers
    num_entries: int  # gatherers that entered their work zone for the first time
    usefulness: float  # sum over gatherers of the share of the partner's need that their new facts cover
    approach: int  # decrease of the distances to the work zones
    new_usefulness: float  # `usefulness`, limited to 1 per gatherer and episode

    def terms(self, reward: Reward) -> dict[str, float]:
        """Return the named terms of a turn's reward. The sum of the terms is the reward.

        The sum of the reward "bounded" over an episode does not grow with the number of turns. The approach is a
        difference of potentials (the negative distances to the work zones), so its sum does not depend on the path.
        """
        terms = {"progress": 10.0 * self.progress, "completed": 4.0 * self.is_completed}
        if reward == "progress":
            return terms
        is_bounded = reward == "bounded"
        steps = {"approach": self.approach} if is_bounded else {"steps_closer": self.num_steps_closer}
        return terms | {
            **{name: 0.05 * count for name, count in steps.items()},
            "first_entries": 0.15 * self.num_entries,
            "useful_facts": 0.1 * (self.new_usefulness if is_bounded else self.usefulness),
        }

    @property
    def published(self) -> float:
        """Published reward. Steps away from the work zone cost nothing, so walking back and forth increases the return.

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
    """Return the first state: both gatherers at their starts."""
    first, second = land.starts
    state = State(
        land.lies, land.starts, (frozenset({first}), frozenset({second})), ((), ()), (0, 0, 0), (False, False)
    )
    zones = [work_zone(land, state, gatherer, settings) for gatherer in (0, 1)]
    return replace(state, has_entered=(first in zones[0], second in zones[1]))


def after(
    land: Land, state: State, walks: Sequence[Sequence[Cell]], facts: Sequence[Sequence[Fact]], settings: Settings
) -> tuple[State, TurnScore]:
    """Play a turn with each gatherer's walk and facts. Return the new state and the numbers for the reward."""
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
    useful = [usefulness(land, state, teller, facts[teller], settings) for teller in (0, 1)]
    first, second = (min(1.0, before + now) for before, now in zip(state.helped, useful, strict=True))
    later = State(
        lies={cell: amounts for cell, amounts in lies.items() if any(amounts)},
        places=places,
        visited=(state.visited[0] | set(walks[0]), state.visited[1] | set(walks[1])),
        told=((*state.told[0], *facts[1]), (*state.told[1], *facts[0])),
        gathered=(gathered[0], gathered[1], gathered[2]),
        has_entered=(entered[0], entered[1]),
        helped=(first, second),
    )
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
    """Return the sum of the gatherers' distances to their work zones. The distance to an empty zone is 0."""
    zones = [work_zone(land, state, gatherer, settings) for gatherer in (0, 1)]
    return sum(_distance(place, zone) for place, zone in zip(state.places, zones, strict=True) if zone)


def progress(land: Land, state: State) -> float:
    """Return the gathered fraction of the goal, 0 to 1, as the mean over the three resources."""
    return sum(min(1.0, has / wants) for has, wants in zip(state.gathered, land.goal, strict=True)) / len(RESOURCES)


def is_completed(land: Land, state: State) -> bool:
    return all(has >= wants for has, wants in zip(state.gathered, land.goal, strict=True))


def still_wanted(land: Land, state: State, gatherer: int) -> dict[str, int]:
    """Return the amounts that the goal still needs of the resources that a gatherer can take."""
    left = {kind: land.goal[kind] - state.gathered[kind] for kind in _tools(gatherer)}
    return {RESOURCES[kind]: amount for kind, amount in left.items() if amount > 0}


def visible(land: Land, state: State, gatherer: int, settings: Settings) -> frozenset[Cell]:
    """Return the cells that a gatherer sees: all cells near the cells that it has visited."""
    return seen_from(state.visited[gatherer], settings.view, land.width, land.depth)


def true_facts(
    land: Land, state: State, teller: int, claims: Sequence[tuple[Cell, str]], settings: Settings
) -> list[Fact]:
    """Return a fact for each true claim about a visible cell, without duplicates, at most `max_facts`."""
    seen = visible(land, state, teller, settings)
    facts: list[Fact] = []
    for cell, resource in dict.fromkeys(claims):
        amount = state.lies.get(cell, (0, 0, 0))[RESOURCES.index(resource)] if resource in RESOURCES else 0
        if cell in seen and amount and len(facts) < settings.max_facts:
            facts.append(Fact(cell, resource, amount))
    return facts


def usefulness(land: Land, state: State, teller: int, facts: Sequence[Fact], settings: Settings) -> float:
    """Return the fraction of the partner's need, 0 to 1, that is covered by facts that are new to the partner."""
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
    """Return the cells from which a gatherer can take a resource that the goal still needs."""
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
    """Return the walk to the cell of the work zone with the highest gain, or towards the zone if it is far."""
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
