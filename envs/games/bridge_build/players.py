"""Scripted players of BridgeBuild. Honest players use only what a worker sees, probes, reads and writes.

Before the last turn, honest workers look and probe. In the last turn, they lay planks beside known true pillars. With
`is_talking`, they also send each other the known cells of the partner's part, and lay the cheapest path from S to T.
Both find the same path, because both use only the cells in the messages.
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

Known = Mapping[Cell, str]  # kinds of the cells that a worker has seen, as letters of its observation

_LETTERS = {"?": "u", ".": "o", "#": "l", "=": "w"}  # letters make one word per row; punctuation marks would cost more
_KINDS = {letter: kind for kind, letter in _LETTERS.items()} | {kind: kind for kind in "STPYN"}
_MESSAGE = re.compile(r"from (\d+) (\d+): ([a-zA-Z ]*)")
_FREE = frozenset("STYNP=")  # kinds of cells that belong to the bridge without a new plank
_RISKS = {"N": 8.0, "P": 3.5}  # expected cost of a plank beside a pillar; two thirds of the unknown pillars are false
_UNSEEN_RISK = 0.2  # cost per unseen neighbour of a plank; neighbouring planks share such cells
_PLANK_PRICE = 0.05
_JOINED = 10.0
_TRUE = 5.0


@dataclass(frozen=True)
class View:
    """Observations and settings that a scripted worker uses."""

    rows: Sequence[str]  # map as the worker reads it
    start: Cell  # cell of S
    end: Cell  # cell of T
    place: Cell  # cell of the worker
    own: Box  # part of the map in which the worker can lay planks
    partners: Box  # part of the map in which the partner can lay planks
    told: Sequence[str]  # messages to the partner
    heard: Sequence[str]  # messages of the partner
    turns_left: int  # number of turns left, 1 in the last turn
    view: int
    max_steps: int | None
    max_probes: int


def honest_reply(seen: View, *, is_talking: bool) -> str:
    known = known_cells(seen.rows)
    shared = merged([*map(read_message, seen.told), *map(read_message, seen.heard)])
    if seen.turns_left == 1:
        known = merged([known, shared])
        way: list[Cell] = []
        if is_talking:  # without messages, the two parts rarely meet
            price, cheapest = cheapest_way(shared, seen.start, seen.end, *_size(seen))
            way = cheapest if price < _JOINED else []
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
    return {(x, z): kind for z, row in enumerate(rows) for x, kind in enumerate(row) if kind != "?"}


def merged(maps: Sequence[Known]) -> dict[Cell, str]:
    """Merge maps of known cells. The kind of a probed pillar replaces "P" (a pillar of unknown kind)."""
    found: dict[Cell, str] = {}
    for each in maps:
        found |= {cell: kind for cell, kind in each.items() if found.get(cell, "P") == "P"}
    return found


def message_of(rows: Sequence[str], box: Box) -> str:
    """Format the known cells of a part of the map as a message.

    from 0 6: oooPoYo oouuuuu
    """
    x, _, z = box.lower
    parts = [row[x : x + box.width] for row in rows[z : z + box.depth]]
    return f"from {x} {z}: {' '.join(''.join(_LETTERS.get(kind, kind) for kind in part) for part in parts)}"


def read_message(text: str) -> dict[Cell, str]:
    """Parse a message of `message_of` to known cells. Return an empty dict for other messages."""
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
    """Return the straight walk on which the worker sees most new cells of `focus`, a part of the map."""
    width, depth = _size(seen)
    steps = max(width, depth) if seen.max_steps is None else seen.max_steps
    x, z = seen.place
    around = range(-steps, steps + 1)
    ends = [(x + dx, z + dz) for dz in around for dx in around if is_on_map((x + dx, z + dz), width, depth)]

    def num_new(walk: Sequence[Cell]) -> int:
        return sum(_holds(focus, cell) and cell not in known for cell in seen_from(walk, seen.view, width, depth))

    return max((straight_walk(seen.place, end, steps) for end in ends), key=num_new)


def _probes(seen: View, known: Known, focus: Box) -> list[Cell]:
    """Return pillars to probe; on the partner's part, only if a message about the result arrives in time."""
    useful = [
        cell
        for cell, kind in known.items()
        if kind == "P" and (_holds(seen.own, cell) or (_holds(focus, cell) and seen.turns_left > 2))
    ]
    return sorted(useful, key=lambda cell: (not _holds(focus, cell), cell))[: seen.max_probes]


def _planks(seen: View, known: Known, way: Sequence[Cell]) -> list[Fill]:
    """Return planks that a worker lays in its part of the map: on the path `way`, and one beside each true pillar."""
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
    """Return the expected cost of a plank in a cell."""
    beside = [known.get(each) for each in neighbours(cell) if is_on_map(each, width, depth)]
    unseen = (cell not in known) + beside.count(None)
    return _PLANK_PRICE + _UNSEEN_RISK * unseen + sum(_RISKS.get(kind, 0.0) for kind in beside if kind)


def _gain(known: Known, cell: Cell, width: int, depth: int) -> float:
    """Return the expected gain of a plank in a cell beside true pillars."""
    return _TRUE * sum(known.get(each) == "Y" for each in neighbours(cell)) - _price(known, cell, width, depth)


def cheapest_way(known: Known, start: Cell, end: Cell, width: int, depth: int) -> tuple[float, list[Cell]]:
    """Return the expected cost and the planks of the cheapest path from start to end (Dijkstra's algorithm)."""
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
    """Exploit: fill the worker's whole part of the map with planks."""
    return reply([Fill(*seen.own.lower, *seen.own.upper, PLANK)], seen.place)


def bent_line(seen: View) -> str:
    """Exploit: lay planks straight from S to the middle row, along it, and straight to T."""
    (x0, z0), (x1, z1) = seen.start, seen.end
    middle = (z0 + z1) // 2
    across = [(x, middle) for x in range(min(x0, x1), max(x0, x1) + 1)]
    return _laid(seen, [*_column(x0, z0, middle), *across, *_column(x1, middle, z1)])


def line_beside_start(seen: View) -> str:
    """Exploit: lay planks along the row beside S, then straight to T."""
    (x0, z0), (x1, z1) = seen.start, seen.end
    beside = z0 + (1 if z1 > z0 else -1)
    across = [(x, beside) for x in range(min(x0, x1), max(x0, x1) + 1)]
    return _laid(seen, [*across, *_column(x1, beside, z1)])


def line_along_edge(seen: View) -> str:
    """Exploit: lay planks from S to the nearest edge of the map, along the edge, and to T."""
    width = len(seen.rows[0])
    (x0, z0), (x1, z1) = seen.start, seen.end
    edge = 0 if x0 + x1 < width else width - 1
    cells = [(x, z) for start, z in ((x0, z0), (x1, z1)) for x in range(min(start, edge), max(start, edge) + 1)]
    return _laid(seen, [*cells, *_column(edge, z0, z1)])


def checkerboard(seen: View) -> str:
    """Exploit: lay planks on every fifth cell, so that every cell has a neighbouring plank."""
    return _laid(seen, [(x, z) for z in range(len(seen.rows)) for x in range(z * 2 % 5, len(seen.rows[0]), 5)])


def beside_seen_pillars(seen: View) -> str:
    """Exploit: walk to the far half and lay a plank beside every seen pillar, without probes."""
    known = known_cells(seen.rows)
    walk = straight_walk(
        seen.place, seen.end if seen.own.contains(seen.end[0], 0, seen.end[1]) else seen.start, seen.max_steps
    )
    return _laid(seen, [neighbours(cell)[1] for cell, kind in known.items() if kind in "PY"], walk)


def probes_only(seen: View) -> str:
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
