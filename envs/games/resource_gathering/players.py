"""Scripted players of ResourceGathering. Honest players use only visible cells and received facts.

The silent player explores until it sees a resource that it can take. The talking player also sends facts about its
partner's resources, and walks to the cells of the facts that it received.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from ..fog import Cell, is_on_map, seen_from, straight_walk
from .prompts import reply
from .rules import RESOURCES, Amounts, Fact, Land, Settings, State, gathering_walk, still_wanted, visible, work_zone


def honest_reply(land: Land, state: State, gatherer: int, settings: Settings, *, turn: int, is_talking: bool) -> str:
    is_waiting = is_talking and turn == 0  # wait for the first facts before exploring
    walk = honest_walk(land, state, gatherer, settings, is_waiting=is_waiting)
    return reply(walk, told_facts(land, state, gatherer, settings) if is_talking else [])


def honest_walk(land: Land, state: State, gatherer: int, settings: Settings, *, is_waiting: bool) -> Sequence[Cell]:
    """Return a walk to the best known resources. If none are known, wait or explore."""
    place = state.places[gatherer]
    known = replace(state, lies=_known_things(state, gatherer, visible(land, state, gatherer, settings)))
    if not still_wanted(land, state, gatherer):
        return (place,)
    if work_zone(land, known, gatherer, settings):
        return gathering_walk(land, known, gatherer, settings)
    return (place,) if is_waiting else exploring_walk(land, state, gatherer, settings)


def exploring_walk(land: Land, state: State, gatherer: int, settings: Settings) -> Sequence[Cell]:
    """Return the straight walk on which the gatherer sees most new cells."""
    x, z = state.places[gatherer]
    seen = visible(land, state, gatherer, settings)
    steps = range(-settings.max_steps, settings.max_steps + 1)
    ends = [(x + dx, z + dz) for dz in steps for dx in steps if is_on_map((x + dx, z + dz), land.width, land.depth)]
    walks = [straight_walk((x, z), end, settings.max_steps) for end in ends]
    return max(walks, key=lambda walk: len(seen_from(walk, settings.view, land.width, land.depth) - seen))


def told_facts(land: Land, state: State, teller: int, settings: Settings) -> list[Fact]:
    """Return the facts that cover most of the partner's need and that were not sent before."""
    wanted = still_wanted(land, state, 1 - teller)
    told = {(fact.cell, fact.resource) for fact in state.told[1 - teller]}
    facts = [
        Fact(cell, kind, state.lies[cell][RESOURCES.index(kind)])
        for cell in sorted(visible(land, state, teller, settings) & state.lies.keys())
        for kind in wanted
        if state.lies[cell][RESOURCES.index(kind)] and (cell, kind) not in told
    ]
    facts.sort(key=lambda fact: -min(1.0, fact.amount / wanted[fact.resource]))
    return facts[: settings.max_facts]


def _known_things(state: State, gatherer: int, seen: frozenset[Cell]) -> dict[Cell, Amounts]:
    """Return the resources in visible cells, and those in other cells according to the received facts."""
    lies = {cell: amounts for cell, amounts in state.lies.items() if cell in seen}
    for fact in state.told[gatherer]:
        if fact.cell not in seen:
            amounts = list(lies.get(fact.cell, (0, 0, 0)))
            amounts[RESOURCES.index(fact.resource)] = fact.amount
            lies[fact.cell] = (amounts[0], amounts[1], amounts[2])
    return lies


Exploit: TypeAlias = Callable[[Land, State, int, Settings, int], str]
"""Function (land, state, gatherer, settings, turn) -> reply."""


def walk_to_and_fro(land: Land, state: State, gatherer: int, settings: Settings, turn: int) -> str:
    """Exploit: take a step towards needed resources in one turn, and go back to the start in the next."""
    place, start = state.places[gatherer], land.starts[gatherer]
    towards = gathering_walk(land, state, gatherer, settings)[:2]
    return reply((place, start) if turn % 2 else towards, [])


def walk_to_partners_start(land: Land, state: State, gatherer: int, settings: Settings, turn: int) -> str:
    """Exploit: walk straight to the partner's start, then around it."""
    x, z = land.starts[1 - gatherer]
    place = state.places[gatherer]
    if max(abs(place[0] - x), abs(place[1] - z)) <= settings.view:
        dx, dz = _DIRECTIONS[turn % len(_DIRECTIONS)]
        x, z = x + settings.view * dx, z + settings.view * dz
    return _towards(land, state, gatherer, settings, (x, z))


def walk_to_mirrored_start(land: Land, state: State, gatherer: int, settings: Settings, turn: int) -> str:
    x, z = land.starts[gatherer]
    return _towards(land, state, gatherer, settings, (land.width - 1 - x, land.depth - 1 - z))


def walk_diagonally(land: Land, state: State, gatherer: int, settings: Settings, turn: int) -> str:
    """Exploit: walk to the farthest corner, because a diagonal walk shows most cells per step."""
    x, z = land.starts[gatherer]
    far = (0 if 2 * x >= land.width else land.width - 1, 0 if 2 * z >= land.depth else land.depth - 1)
    return _towards(land, state, gatherer, settings, far)


EXPLOITS: Mapping[str, Exploit] = {
    "walk to and fro": walk_to_and_fro,
    "walk to the partner's start": walk_to_partners_start,
    "walk to the mirrored start": walk_to_mirrored_start,
    "walk to the middle": lambda land, state, gatherer, settings, turn: _towards(
        land, state, gatherer, settings, (land.width // 2, land.depth // 2)
    ),
    "walk diagonally": walk_diagonally,
    "tell and stay": lambda land, state, gatherer, settings, turn: reply(
        [state.places[gatherer]], told_facts(land, state, gatherer, settings)
    ),
}
_DIRECTIONS = ((1, 1), (-1, 1), (-1, -1), (1, -1))


def _towards(land: Land, state: State, gatherer: int, settings: Settings, end: Cell) -> str:
    x, z = (min(max(end[0], 0), land.width - 1), min(max(end[1], 0), land.depth - 1))
    return reply(straight_walk(state.places[gatherer], (x, z), settings.max_steps), [])
