"""Parsing of replies and visibility of cells for BridgeBuild and ResourceGathering.

Replies are JSON objects or Python literals. Unreadable parts are ignored; no reply raises an error.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

Cell = tuple[int, int]  # cell (x, z) of the map: x to the right, z downwards, both from 0

Feedback = Literal["none", "score"]  # feedback in addition to the visible cells: nothing, or the score of the turn

MAX_MESSAGE_LENGTH = 400  # in characters

_MAX_READ = 50_000  # per reply: maximum of characters of unclosed JSON plus tokens of Python literals
_TOKEN = re.compile(
    r"""\s*(?:(?P<double>"(?:[^"\\\n]|\\.)*")|(?P<single>'(?:[^'\\\n]|\\.)*')|(?P<mark>[{}\[\]():,])"""
    r"""|(?P<name>True|true|False|false|None|null)\b|(?P<sign>[+-])?(?P<number>[0-9]{1,9}(?:\.[0-9]{0,9})?))"""
)
_NAMES = {"True": "true", "False": "false", "None": "null"}
_BRACKETS = {"(": "[", ")": "]"}
_INTEGER = re.compile(r"([+-]?[0-9]{1,6})(?:\.0*)?")
_PAIR = re.compile(r"\s*\(?\s*([+-]?[0-9]{1,6})\s*,\s*([+-]?[0-9]{1,6})\s*\)?\s*")
_WORD = re.compile(r"\w+|[^\w\s]")
# Line and page breaks, control characters, lone surrogates, and marks of the text direction.
_UNREADABLE = re.compile(
    "[\x00-\x1f\x7f-\x9f\ud800-\udfff\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)


def neighbours(cell: Cell) -> tuple[Cell, Cell, Cell, Cell]:
    """Return the four cells that share a side with this cell, including cells outside the map."""
    x, z = cell
    return (x - 1, z), (x + 1, z), (x, z - 1), (x, z + 1)


def is_on_map(cell: Cell, width: int, depth: int) -> bool:
    return 0 <= cell[0] < width and 0 <= cell[1] < depth


def seen_from(places: Iterable[Cell], view: int, width: int, depth: int) -> frozenset[Cell]:
    """Return the cells of the map whose distance from one of the places is at most `view` along x and along z."""
    return frozenset(
        (x, z)
        for px, pz in places
        for x in range(max(0, px - view), min(width, px + view + 1))
        for z in range(max(0, pz - view), min(depth, pz + view + 1))
    )


def action(reply: str, keys: frozenset[str]) -> Mapping[str, Any]:
    """Parse a reply: return its last object with at least one of the given keys, or an empty dict.

    An object is JSON, or a Python literal with single quotes, parentheses or a comma before a closing bracket. Objects
    inside a readable object are not returned. An unreadable object is searched for inner objects, up to `_MAX_READ`.
    """
    decoder = json.JSONDecoder()
    last: Mapping[str, Any] = {}
    budget = _MAX_READ
    begin = reply.find("{")
    while begin >= 0 and budget > 0:
        try:
            found, end = decoder.raw_decode(reply, begin)
        except (ValueError, RecursionError) as error:
            fault = error.pos if isinstance(error, json.JSONDecodeError) else len(reply)
            budget -= fault - begin
            text, end, used = _as_json(reply, begin, budget)
            budget -= used
            try:
                found = json.loads(text)
            except (ValueError, RecursionError):
                found, end = None, begin + 1
        if isinstance(found, Mapping) and keys & found.keys():
            last = found
        begin = reply.find("{", end)
    return last


def _as_json(reply: str, begin: int, max_tokens: int) -> tuple[str, int, int]:
    """Convert the Python literal at `begin` to JSON. Return the JSON text, the end index and the number of tokens.

    The text is empty if a bracket is not closed, if another token occurs, or after `max_tokens` tokens.
    """
    tokens: list[str] = []
    depth = 0
    place = begin
    while len(tokens) < max_tokens:
        match = _TOKEN.match(reply, place)
        if match is None:
            break
        place = match.end()
        kind = match.lastgroup
        token = match[str(kind)]
        if kind == "mark":
            token = _BRACKETS.get(token, token)
            depth += (token in "{[") - (token in "}]")
            if token in "}]" and tokens and tokens[-1] == ",":
                tokens.pop()
        elif kind == "single":
            token = '"' + token[1:-1].replace("\\'", "'").replace('"', '\\"') + '"'
        elif kind == "name":
            token = _NAMES.get(token, token)
        elif kind == "number":  # JSON has no leading zeros, and needs a digit after the point
            whole, point, rest = token.partition(".")
            sign = "-" if match["sign"] == "-" else ""
            token = f"{sign}{int(whole)}{point}{rest or ('0' if point else '')}"
        tokens.append(token)
        if depth == 0:
            return " ".join(tokens), place, len(tokens)
    return "", begin, len(tokens)


def cell(value: Any) -> Cell | None:
    """Convert a JSON value to a cell: [x, z], {"x": x, "z": z} or "x,z". Return None for other values."""
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
    """Convert a JSON number or string to an integer (3.0 is 3). Return None for other values."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    match = _INTEGER.fullmatch(value) if isinstance(value, str) else None
    return int(match[1]) if match else None


def walk(value: Any, start: Cell, width: int, depth: int, max_steps: int | None) -> tuple[Cell, ...]:
    """Convert a JSON list of cells to a walk that begins at `start`. Each step goes to one of the eight adjacent cells.

    The list may omit the start. If the list begins elsewhere, skips a cell or leaves the map, the walk is only the
    start. Steps after `max_steps` are cut off.
    """
    if not isinstance(value, list) or not value:
        return (start,)
    walked = [start]
    for part in value[1:] if cell(value[0]) == start else value:
        if max_steps is not None and len(walked) > max_steps:
            break
        place = cell(part)
        if place is None or not is_on_map(place, width, depth):
            return (start,)
        if max(abs(place[0] - walked[-1][0]), abs(place[1] - walked[-1][1])) > 1:
            return (start,)
        walked.append(place)
    return tuple(walked)


def message(value: Any) -> str:
    """Return a message as one line of at most `MAX_MESSAGE_LENGTH` characters; values that are not text become JSON."""
    if value is None or value in ("", [], {}):
        return ""
    try:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    except RecursionError:  # nested almost too deep for the parser
        return ""
    return _UNREADABLE.sub(" ", text)[:MAX_MESSAGE_LENGTH].strip()


def num_words(text: str) -> int:
    """Count the words and punctuation marks of a message. The reward subtracts a fixed cost for each."""
    return len(_WORD.findall(text))


def listed(cells: Iterable[Cell]) -> str:
    """Format cells as text such as "1 0, 2 0", sorted by z and then by x."""
    return ", ".join(f"{x} {z}" for x, z in sorted(cells, key=lambda place: (place[1], place[0]))) or "none"


def with_score(text: str, score: float, mode: Feedback) -> str:
    return f"Score {score:.3f}.\n{text}" if mode == "score" else text


def straight_walk(start: Cell, end: Cell, max_steps: int | None) -> tuple[Cell, ...]:
    """Return the shortest walk from start to end, with the diagonal steps first, cut after `max_steps` steps."""
    cells = [start]
    while cells[-1] != end and (max_steps is None or len(cells) <= max_steps):
        (x, z), (to_x, to_z) = cells[-1], end
        cells.append((x + (to_x > x) - (to_x < x), z + (to_z > z) - (to_z < z)))
    return tuple(cells)


def as_json(cells: Sequence[Cell]) -> list[list[int]]:
    return [list(place) for place in cells]
