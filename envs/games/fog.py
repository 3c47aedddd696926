"""What the two games on a map share: what can be seen, walks, and replies that are JSON objects.

A reply is data: what cannot be read counts as left out, never as an error.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

Cell = tuple[int, int]
"""A place on the map: x to the right, z downwards, both from 0."""

Feedback = Literal["none", "score"]
"""What is read after a turn besides what can be seen: nothing, or the turn's score."""

MAX_MESSAGE_LENGTH = 400  # characters

_MAX_BRACES = 64  # places where an object may begin that are tried
_INTEGER = re.compile(r"[+-]?[0-9]{1,6}")
_PAIR = re.compile(r"\s*\(?\s*([+-]?[0-9]{1,6})\s*,\s*([+-]?[0-9]{1,6})\s*\)?\s*")
_WORD = re.compile(r"\w+|[^\w\s]")
_UNREADABLE = re.compile("[\ud800-\udfff\x00-\x1f]")


def neighbours(cell: Cell) -> tuple[Cell, Cell, Cell, Cell]:
    """The four cells that share a side with this one, on the map or not."""
    x, z = cell
    return (x - 1, z), (x + 1, z), (x, z - 1), (x, z + 1)


def is_on_map(cell: Cell, width: int, depth: int) -> bool:
    """Whether the map has this cell."""
    return 0 <= cell[0] < width and 0 <= cell[1] < depth


def seen_from(places: Iterable[Cell], view: int, width: int, depth: int) -> frozenset[Cell]:
    """The cells of the squares of 2 view + 1 around the places."""
    return frozenset(
        (x, z)
        for px, pz in places
        for x in range(max(0, px - view), min(width, px + view + 1))
        for z in range(max(0, pz - view), min(depth, pz + view + 1))
    )


def action(reply: str, keys: frozenset[str]) -> Mapping[str, Any]:
    """The first JSON object in a reply that has one of the keys; an empty one if there is none."""
    decoder = json.JSONDecoder()
    begin = -1
    for _ in range(_MAX_BRACES):
        begin = reply.find("{", begin + 1)
        if begin < 0:
            break
        try:
            found, _ = decoder.raw_decode(reply, begin)
        except (ValueError, RecursionError):
            continue
        if keys & found.keys():
            return dict(found)
    return {}


def cell(value: Any) -> Cell | None:
    """The cell that a piece of JSON names: [x, z], {"x": x, "z": z} or "x,z"."""
    if isinstance(value, str):
        match = _PAIR.fullmatch(value)
        return (int(match[1]), int(match[2])) if match else None
    if isinstance(value, Mapping):
        value = [value.get("x"), value.get("z")]
    if not isinstance(value, list) or len(value) < 2:
        return None
    numbers = [whole_number(part) for part in value[:2]]
    return None if numbers[0] is None or numbers[1] is None else (numbers[0], numbers[1])


def whole_number(value: Any) -> int | None:
    """The integer that a piece of JSON is or spells."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    return int(value) if isinstance(value, str) and _INTEGER.fullmatch(value) else None


def walk(value: Any, start: Cell, width: int, depth: int, max_steps: int | None) -> tuple[Cell, ...]:
    """The cells of a walk, the first one the start; steps go to any of the eight cells around.

    A walk that does not begin at the start, jumps, or leaves the map is not walked at all; one that is too long is
    walked as far as allowed.
    """
    if not isinstance(value, list) or not value:
        return (start,)
    cells = [cell(part) for part in value[: 1 + (len(value) if max_steps is None else max_steps)]]
    walked: list[Cell] = []
    for place in cells:
        if place is None or not is_on_map(place, width, depth):
            return (start,)
        if walked and max(abs(place[0] - walked[-1][0]), abs(place[1] - walked[-1][1])) > 1:
            return (start,)
        walked.append(place)
    return tuple(walked) if walked[0] == start else (start,)


def message(value: Any) -> str:
    """What a builder tells its partner, on one line and not too long; JSON that is no text is told as JSON."""
    if value is None or value in ("", [], {}):
        return ""
    try:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    except RecursionError:  # brackets in brackets, just short of what the reader refused
        return ""
    return _UNREADABLE.sub(" ", text)[:MAX_MESSAGE_LENGTH].strip()


def num_words(text: str) -> int:
    """Words and punctuation marks: the tokens that a message is charged for."""
    return len(_WORD.findall(text))


def listed(cells: Iterable[Cell]) -> str:
    """Cells in reading order, as text."""
    return ", ".join(f"{x} {z}" for x, z in sorted(cells, key=lambda place: (place[1], place[0]))) or "none"


def with_score(text: str, score: float, mode: Feedback) -> str:
    """What is read after a turn, headed by the score where that is told."""
    return f"Score {score:.3f}.\n{text}" if mode == "score" else text


def straight_walk(start: Cell, end: Cell, max_steps: int | None) -> tuple[Cell, ...]:
    """The shortest walk from start towards end, diagonal first, as far as the steps go."""
    cells = [start]
    while cells[-1] != end and (max_steps is None or len(cells) <= max_steps):
        (x, z), (to_x, to_z) = cells[-1], end
        cells.append((x + (to_x > x) - (to_x < x), z + (to_z > z) - (to_z < z)))
    return tuple(cells)


def as_json(cells: Sequence[Cell]) -> list[list[int]]:
    """Cells as a reply writes them."""
    return [list(place) for place in cells]
