"""Parser of the commands of the building games.

Each line is a command: `/setblock x y z block`, `/fill x1 y1 z1 x2 y2 z2 block` or `/kill`. Illegal lines and lines
above the limit are skipped and counted; no reply raises an error. As in the published benchmark, a fenced code block,
list markers, a missing slash and the prefix `minecraft:` are accepted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from .blocks import AIR, Box, Fill

Verb = Literal["setblock", "fill"]

_LIST_MARKER = re.compile(r"\A(?:[-*]+|\d+[.)])\s*")
_LANGUAGE_TAG = re.compile(r"\s*[\w-]+[^\S\n]*\n", re.ASCII)
_INTEGER = re.compile(r"[+-]?[0-9]{1,9}")
_NAMESPACE = "minecraft:"
Axis = Mapping[str, int]


@dataclass(frozen=True)
class Orders:
    """Legal commands of one reply."""

    fills: tuple[Fill, ...] = ()
    num_kills: int = 0
    num_rejected: int = 0  # illegal lines, and lines above a limit
    is_leaving: bool = False  # the builder plays no further turn

    @property
    def num_accepted(self) -> int:
        return len(self.fills) + self.num_kills


def read_orders(
    reply: str,
    box: Box,
    blocks: Mapping[str, int],
    *,
    verb: Verb,
    max_commands: int,
    stock: Mapping[int, int] | None = None,
    can_kill: bool = False,
    can_leave: bool = False,
) -> Orders:
    """Parse the legal commands of a reply, in their order.

    Args:
        reply: any text.
        box: box that contains all corners of legal commands.
        blocks: dict from the names of the allowed blocks to their numbers.
        verb: building command of the game, "setblock" or "fill".
        max_commands: maximum number of legal commands; further commands are rejected.
        stock: number of cells that may be filled with each block. A fill that exceeds the remaining number is rejected.
            Air, and blocks without an entry, are unlimited.
        can_kill: True allows `/kill`, with any text after it.
        can_leave: True allows `/done`, which is not counted as a command.
    """
    fills: list[Fill] = []
    is_leaving = False
    num_kills = num_rejected = 0
    left = dict(stock or {})
    axes = _axes(box)
    for words in _commands(reply, f"/{verb}"):
        name = words[0]
        if can_leave and words == ["done"]:
            is_leaving = True
        elif len(fills) + num_kills >= max_commands:
            num_rejected += 1
        elif name == verb:
            fill = _fill(words, verb, axes, blocks)
            if fill is None or (fill.block in left and left[fill.block] < fill.volume):
                num_rejected += 1
                continue
            if fill.block in left:
                left[fill.block] -= fill.volume
            fills.append(fill)
        elif can_kill and name == "kill":
            num_kills += 1
        else:
            num_rejected += 1
    return Orders(tuple(fills), num_kills, num_rejected, is_leaving)


def command(fill: Fill, names: tuple[str, ...], verb: Verb = "fill") -> str:
    """Format a fill as a command. `/setblock` contains only the first corner."""
    corners = fill[: 3 if verb == "setblock" else 6]
    return f"/{verb} {' '.join(map(str, corners))} {names[fill.block]}"


def counted(orders: Orders) -> str:
    """Return a sentence with the numbers of executed and of refused commands."""
    refused = f", {orders.num_rejected} lines refused" if orders.num_rejected else ""
    return f"{orders.num_accepted} commands carried out{refused}."


def run_order(builder: int, num_builders: int) -> str:
    """Return the sentence of a builder's prompt about the order in which the builders' commands are executed."""
    partners, them, theirs = (
        ("partner's", "they", "your partner's") if num_builders == 2 else ("partners'", "they", "their")
    )
    if builder == 0:
        return f"Your {partners} commands run after yours, so {them} may replace your blocks."
    if builder == num_builders - 1:
        return f"Your commands run after your {partners}, so they may replace {theirs} blocks."
    return (
        f"Commands run in the order of the builders: yours may replace the blocks of builders 1 to {builder}, and "
        "those of the builders after you may replace yours."
    )


def allowed(names: tuple[str, ...], numbers: tuple[int, ...]) -> dict[str, int]:
    """Return a dict: name -> number, for the given blocks and for air."""
    return {"air": AIR, **{names[number]: number for number in numbers}}


def _commands(reply: str, usual: str) -> Iterator[list[str]]:
    """Yield the words of each nonempty reply line. The first word is the command, in lower case without a slash."""
    if "```" in reply:
        parts = reply.split("```", 2)
        if len(parts) == 3:
            reply = _LANGUAGE_TAG.sub("", parts[1], count=1) if _LANGUAGE_TAG.match(parts[1]) else parts[1]
    for line in reply.splitlines():
        words = line.split()
        if words and words[0] != usual:  # fast path: most lines need no cleaning
            words = _LIST_MARKER.sub("", line.strip()).removeprefix("/").split()
        if words:
            words[0] = words[0].lower().removeprefix("/")
            yield words


def _fill(words: list[str], verb: Verb, axes: tuple[Axis, Axis, Axis], blocks: Mapping[str, int]) -> Fill | None:
    # Extra words are rejected after /fill, where `replace` and `keep` change its meaning, but ignored after /setblock.
    if len(words) < 5 or (verb == "fill" and len(words) != 8):
        return None
    name, corners = (words[4], words[1:4] * 2) if verb == "setblock" else (words[7], words[1:7])
    block = blocks.get(name.removeprefix(_NAMESPACE))
    x1, y1, z1, x2, y2, z2 = map(_number, corners, axes * 2)
    if block is None or x1 is None or y1 is None or z1 is None or x2 is None or y2 is None or z2 is None:
        return None
    return Fill(min(x1, x2), min(y1, y2), min(z1, z2), max(x1, x2), max(y1, y2), max(z1, z2), block)


@lru_cache(maxsize=256)  # a lookup in a dict from text to coordinate is faster than parsing
def _axes(box: Box) -> tuple[Axis, Axis, Axis]:
    x, y, z = ({str(i): i for i in range(low, high + 1)} for low, high in zip(box.lower, box.upper, strict=True))
    return x, y, z


def _number(word: str, axis: Axis) -> int | None:
    """Convert a word to a coordinate inside the box: "+3" and "03" are 3. Return None for "~3" and other words."""
    number = axis.get(word)
    if number is None and _INTEGER.fullmatch(word):
        return axis.get(str(int(word)))
    return number
