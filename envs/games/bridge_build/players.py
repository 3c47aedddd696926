"""Scripted honest players of BridgeBuild. They read only what a worker sees, probed, was told and told itself.

In all turns except the last one they look and probe; the talking player also tells its partner what it knows of the
part of the map where the partner lays planks. In the last turn they lay planks beside the true pillars they know of.
Talking players also lay the way from S to T that is expected to cost least. Both find the same way: they search it on
what both have told.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ..blocks import Box, Fill
from ..fog import Cell, is_on_map, neighbours, seen_from, straight_walk
from .prompts import reply
from .rules import MAX_COMMANDS, PLANK

Known = Mapping[Cell, str]
"""Kinds of cells by place, as a worker reads them; unseen cells are left out."""

_LETTERS = {"?": "u", ".": "o", "#": "l", "=": "w"}  # one word per row, where punctuation marks count as words each
_KINDS = {letter: kind for kind, letter in _LETTERS.items()} | {kind: kind for kind in "STPYN"}
_MESSAGE = re.compile(r"from (\d+) (\d+): ([a-zA-Z ]*)")
_FREE = frozenset("STYNP=")  # kinds that carry without a new plank
_RISKS = {"N": 8.0, "P": 3.5}
"""Points that a plank beside a pillar loses; two thirds of the unknown pillars are false."""
_UNSEEN_RISK = 0.2  # per unseen cell beside a plank; planks side by side share such cells
_PLANK_PRICE = 0.05
_JOINED = 10.0
_TRUE = 5.0


@dataclass(frozen=True)
class View:
    """What an honest worker knows of the game, besides its rules."""

    rows: Sequence[str]  # the map as the worker reads it
    start: Cell  # S
    end: Cell  # T
    place: Cell  # where the worker is
    own: Box  # where the worker lays planks
    partners: Box  # where its partner does
    told: Sequence[str]  # messages to the partner
    heard: Sequence[str]  # messages of the partner
    turns_left: int  # 1 in the last turn
    view: int
    max_steps: int | None
    max_probes: int


def honest_reply(seen: View, *, is_talking: bool) -> str:
    """The reply of an honest worker."""
    known = known_cells(seen.rows)
    shared = merged([*map(read_message, seen.told), *map(read_message, seen.heard)])
    if seen.turns_left == 1:
        known = merged([known, shared])
        way = _worthwhile_way(seen, shared) if is_talking else []  # silent workers hardly ever meet
        return reply(_planks(seen, known, way), seen.place)
    focus = seen.partners if is_talking else seen.own
    return reply(
        [],
        seen.place,
        walk=_looking_walk(seen, known, focus),
        probes=_probes(seen, known, focus),
        message=message_of(seen.rows, seen.partners) if is_talking else "",
    )


def known_cells(rows: Sequence[str]) -> dict[Cell, str]:
    """The seen cells of a map."""
    return {(x, z): kind for z, row in enumerate(rows) for x, kind in enumerate(row) if kind != "?"}


def merged(maps: Sequence[Known]) -> dict[Cell, str]:
    """What is known from several maps; the kind of a probed pillar counts before "P"."""
    found: dict[Cell, str] = {}
    for each in maps:
        found |= {cell: kind for cell, kind in each.items() if found.get(cell, "P") == "P"}
    return found


def message_of(rows: Sequence[str], box: Box) -> str:
    """The message that tells what is known of a part of the map.

    from 0 6: oooPoYo oouuuuu
    """
    x, _, z = box.lower
    parts = [row[x : x + box.width] for row in rows[z : z + box.depth]]
    return f"from {x} {z}: {' '.join(''.join(_LETTERS.get(kind, kind) for kind in part) for part in parts)}"


def read_message(text: str) -> dict[Cell, str]:
    """The cells that a message tells of; none if it is not of the form of `message_of`."""
    match = _MESSAGE.fullmatch(text)
    if match is None:
        return {}
    left, top = int(match[1]), int(match[2])
    return {
        (left + dx, top + dz): _KINDS[letter]
        for dz, row in enumerate(match[3].split())
        for dx, letter in enumerate(row)
        if letter in _KINDS and letter != "u"
    }


def _holds(box: Box, cell: Cell) -> bool:
    return box.contains(cell[0], 0, cell[1])


def _size(seen: View) -> tuple[int, int]:
    return len(seen.rows[0]), len(seen.rows)


def _looking_walk(seen: View, known: Known, focus: Box) -> Sequence[Cell]:
    """The straight walk from which most new cells of a part of the map are seen."""
    width, depth = _size(seen)
    steps = max(width, depth) if seen.max_steps is None else seen.max_steps
    x, z = seen.place
    around = range(-steps, steps + 1)
    ends = [(x + dx, z + dz) for dz in around for dx in around if is_on_map((x + dx, z + dz), width, depth)]

    def num_new(walk: Sequence[Cell]) -> int:
        return sum(_holds(focus, cell) and cell not in known for cell in seen_from(walk, seen.view, width, depth))

    return max((straight_walk(seen.place, end, steps) for end in ends), key=num_new)


def _probes(seen: View, known: Known, focus: Box) -> list[Cell]:
    """Pillars of unknown kind. Of the partner's, only those whose kind can still be told in time."""
    useful = [
        cell
        for cell, kind in known.items()
        if kind == "P" and (_holds(seen.own, cell) or (_holds(focus, cell) and seen.turns_left > 2))
    ]
    return sorted(useful, key=lambda cell: (not _holds(focus, cell), cell))[: seen.max_probes]


def _worthwhile_way(seen: View, shared: Known) -> list[Cell]:
    """The planks of the cheapest way; none if it is expected to lose more than it earns."""
    price, way = cheapest_way(shared, seen.start, seen.end, *_size(seen))
    return way if price < _JOINED else []


def _planks(seen: View, known: Known, way: Sequence[Cell]) -> list[Fill]:
    """Own planks of the way, and one beside each true pillar that is still bare."""
    planks = {*way, *(cell for cell, kind in known.items() if kind == "=")}
    laid = [cell for cell in way if _holds(seen.own, cell)]
    for pillar in sorted(cell for cell, kind in known.items() if kind == "Y"):
        beside = [cell for cell in neighbours(pillar) if known.get(cell) in (".", "#") and _holds(seen.own, cell)]
        if beside and not planks & set(neighbours(pillar)):
            best = max(beside, key=lambda cell: _gain(known, cell, *_size(seen)))
            if _gain(known, best, *_size(seen)) > 0:
                laid.append(best)
                planks.add(best)
    return [Fill(x, 0, z, x, 0, z, PLANK) for x, z in laid[: MAX_COMMANDS // 2]]


def _price(known: Known, cell: Cell, width: int, depth: int) -> float:
    """Points that a plank is expected to lose."""
    beside = [known.get(each) for each in neighbours(cell) if is_on_map(each, width, depth)]
    unseen = (cell not in known) + beside.count(None)
    return _PLANK_PRICE + _UNSEEN_RISK * unseen + sum(_RISKS.get(kind, 0.0) for kind in beside if kind)


def _gain(known: Known, cell: Cell, width: int, depth: int) -> float:
    """Points that a plank beside true pillars is expected to earn."""
    return _TRUE * sum(known.get(each) == "Y" for each in neighbours(cell)) - _price(known, cell, width, depth)


def cheapest_way(known: Known, start: Cell, end: Cell, width: int, depth: int) -> tuple[float, list[Cell]]:
    """The planks of the way that is expected to lose fewest points, and how many it loses (Dijkstra)."""
    price = {start: 0.0}
    came_from: dict[Cell, Cell] = {}
    todo = [(0.0, start)]
    while todo:
        lost, cell = heapq.heappop(todo)
        if cell == end:
            break
        for step in neighbours(cell):
            if lost > price[cell] or not is_on_map(step, width, depth):
                continue
            total = lost + (0.0 if known.get(step) in _FREE or step == end else _price(known, step, width, depth))
            if total < price.get(step, total + 1.0):
                price[step], came_from[step] = total, cell
                heapq.heappush(todo, (total, step))
    way = []
    place = came_from[end]
    while place != start:
        if known.get(place) not in _FREE:
            way.append(place)
        place = came_from[place]
    return price[end], way


Exploit: TypeAlias = Callable[[View], str]


def flood(seen: View) -> str:
    """Planks all over what a worker reaches, whatever lies there."""
    return reply([Fill(*seen.own.lower, *seen.own.upper, PLANK)], seen.place)


def bent_line(seen: View) -> str:
    """Straight from S to the middle, across, and on to T."""
    (x0, z0), (x1, z1) = seen.start, seen.end
    middle = (z0 + z1) // 2
    across = [(x, middle) for x in range(min(x0, x1), max(x0, x1) + 1)]
    return _laid(seen, [*_column(x0, z0, middle), *across, *_column(x1, middle, z1)])


def line_beside_start(seen: View) -> str:
    """Across beside S, then straight to T."""
    (x0, z0), (x1, z1) = seen.start, seen.end
    beside = z0 + (1 if z1 > z0 else -1)
    across = [(x, beside) for x in range(min(x0, x1), max(x0, x1) + 1)]
    return _laid(seen, [*across, *_column(x1, beside, z1)])


def line_along_edge(seen: View) -> str:
    """From S to the nearest edge of the map, along it, and to T."""
    width = len(seen.rows[0])
    (x0, z0), (x1, z1) = seen.start, seen.end
    edge = 0 if x0 + x1 < width else width - 1
    cells = [(x, z) for start, z in ((x0, z0), (x1, z1)) for x in range(min(start, edge), max(start, edge) + 1)]
    return _laid(seen, [*cells, *_column(edge, z0, z1)])


def checkerboard(seen: View) -> str:
    """A plank beside every cell, on every fifth one."""
    return _laid(seen, [(x, z) for z in range(len(seen.rows)) for x in range(z * 2 % 5, len(seen.rows[0]), 5)])


def beside_seen_pillars(seen: View) -> str:
    """Walk to the far half, with a plank beside every pillar that is seen, without a probe."""
    known = known_cells(seen.rows)
    walk = straight_walk(
        seen.place, seen.end if seen.own.contains(seen.end[0], 0, seen.end[1]) else seen.start, seen.max_steps
    )
    return _laid(seen, [neighbours(cell)[1] for cell, kind in known.items() if kind in "PY"], walk)


def probes_only(seen: View) -> str:
    """Probe what is seen, and lay nothing."""
    known = known_cells(seen.rows)
    probes = [cell for cell, kind in known.items() if kind == "P"]
    return reply([], seen.place, probes=probes[: seen.max_probes])


EXPLOITS: Mapping[str, Exploit] = {
    "flood every row": flood,
    "bent line": bent_line,
    "line beside S": line_beside_start,
    "line along the edge": line_along_edge,
    "every fifth cell": checkerboard,
    "beside every seen pillar": beside_seen_pillars,
    "probe only": probes_only,
}


def _column(x: int, z0: int, z1: int) -> list[Cell]:
    return [(x, z) for z in range(min(z0, z1), max(z0, z1) + 1)]


def _laid(seen: View, cells: Iterable[Cell], walk: Sequence[Cell] = ()) -> str:
    ends = (seen.start, seen.end)
    placed = [(x, z) for x, z in dict.fromkeys(cells) if seen.own.contains(x, 0, z) and (x, z) not in ends]
    return reply([Fill(x, 0, z, x, 0, z, PLANK) for x, z in placed], seen.place, walk=walk)
