"""Prompts and feedback of HouseBuild. `games.commands` parses the replies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from ...templates import Originals
from ..blocks import AIR, Fill, cells
from ..building import ORIGINAL_CONSTANTS, BuilderTurn, WorldRule, share_advised
from ..commands import Orders, command, counted
from . import rules
from .rules import HIT_POINTS, MAX_COMMANDS, House, HouseScore

Feedback = Literal["score", "perfect", "position", "position_modification", "rect_modification", "resource_schedule"]

_KILL = "/kill"

PROMPT = """\
You are builder {number} of a team of {team} that builds a house. {writing} {order}
The world: {box}.
The house, layer by layer, as rectangles x1 z1 x2 z2 block; all else is air:
{layers}
In one turn each of you may fill so many cells, those you fill again counted again: {stock}. Air is free.
{spiders}
The score compares every cell with the house, so each of you builds a part of it.
You have {turns} turns. {world}
Reply with commands only, one a line, at most {limit}:
/fill <x1> <y1> <z1> <x2> <y2> <z2> <block>
/kill{leaving}"""
ORIGINALS = Originals(
    "house_build/utils/prompting.py",
    ORIGINAL_CONSTANTS,
    {
        "block_agent1_lines": "{block_list}",
        "block_agent2_lines": "{block_list}",
        "layers_text": "{slices}",
        "world_bbox_from": "{lower}",
        "world_bbox_to": "{upper}",
    },
    added="\n\nCells that each agent may fill with a block (air has no limit):\n{stock_list}",
)
"""Prompts of github.com/OpenMLRL/LLM_Collab_Minecraft."""
_BOX = "x = {0[0]}..{1[0]}, y = {0[1]}..{1[1]} upwards, z = {0[2]}..{1[2]}"
_SPIDERS = (
    "{num} spiders attack, with damage {attacks}, {total} in all, against your {hit_points} hit points; "
    "if one of you writes /kill they are dead."
)
_WORLD_RULES = {
    "rebuilt": "Each turn starts from an empty world, and the spiders are back: repeat what was right.",
    "kept": "What stands stays for the next turn, and dead spiders stay dead.",
}
_AGAIN = {"rebuilt": " Repeat all else that you built.", "kept": ""}


def fields(house: House, attacks: Sequence[int], world: WorldRule) -> dict[str, str | int]:
    heights = range(house.box.y, house.box.upper[1] + 1)
    return dict(
        box=_BOX.format(house.box.lower, house.box.upper),
        layers="\n".join(f"y={y}: {_rectangles(_layer(house, y), house)}" for y in heights),
        stock=_stock(house, house.stock),
        block_list="\n".join(f"- {house.blocks[block]}" for block in (*house.stock, AIR)),
        slices="\n".join(f"y={y}: {{{_tuples(house, y)}}}" for y in heights),
        lower=str(list(house.box.lower)),
        upper=str(list(house.box.upper)),
        stock_list="\n".join(f"- {house.blocks[block]}: {count}" for block, count in house.stock.items()),
        spiders=_SPIDERS.format(
            num=len(attacks), attacks=" + ".join(map(str, attacks)), total=sum(attacks), hit_points=HIT_POINTS
        )
        if sum(attacks)
        else "There are no spiders.",
        world=_WORLD_RULES[world],
        limit=MAX_COMMANDS,
    )


def reply(fills: Iterable[Fill], house: House, *, is_killing: bool) -> str:
    return "\n".join([*([_KILL] if is_killing else []), *(command(fill, house.blocks) for fill in fills)])


def feedback(mode: Feedback, turn: BuilderTurn[House, HouseScore], *, limit: int) -> str:
    """Return the feedback of a turn. In the modification modes, it has at most `limit` cells or rectangles."""
    house, world, builder, orders, again = turn.task, turn.world, turn.builder, turn.orders, _AGAIN[turn.world_rule]
    match mode:
        case "score":
            hurt = f" The spiders took {turn.score.damage:.0%} of your hit points." if turn.score.damage else ""
            return f"Score {turn.value:.4f}. {counted(orders)}{hurt}"
        case "perfect":
            own_cells = sorted(rules.wrong_cells(house, world), key=_from_the_top)[builder :: house.num_builders]
            return f"{counted(orders)} To change, as x y z block: {_cells(own_cells, house)}.{again}"
        case "position":
            wanted = sorted(cells(house.target, house.box), key=_from_the_top)
            return (
                f"{counted(orders)} The cells of the house, as x y z block: {_cells(wanted, house)}. "
                f"{share_advised(len(wanted), house.num_builders)}."
            )
        case "position_modification":
            lowest_cells = sorted(rules.wrong_cells(house, world), key=lambda cell: (cell[1], cell[0], cell[2]))[:limit]
            return f"{counted(orders)} To change, as x y z block: {_cells(lowest_cells, house)}.{again}"
        case "rect_modification":
            low, high = _heights(house, builder)
            own = [fill for fill in rules.rectangles_to_mend(house, world) if low <= fill.y1 <= high][:limit]
            return f"{_carried_out(orders, house)}\nTo mend, as y: x1 z1 x2 z2 block: {_by_height(own, house)}.{again}"
        case "resource_schedule":
            left = rules.stock_left(house, orders.fills)
            fills = rules.affordable_rectangles(house, left)
            return (
                f"{_carried_out(orders, house)}\nStock left over: {_stock(house, left)}.\n"
                f"It would do for, as y: x1 z1 x2 z2 block: {_by_height(fills, house)}."
            )


def _from_the_top(cell: tuple[int, int, int, int]) -> tuple[int, int, int]:
    return -cell[1], cell[0], cell[2]


def _heights(house: House, builder: int) -> tuple[int, int]:
    bottom, top = house.box.y, house.box.upper[1]
    team = house.num_builders
    # Two successive builders share one layer. For two builders the boundary is that of the published game.
    parting = [2] if team == 2 else [bottom + (top - bottom) * i // team for i in range(1, team)]
    bounds = [bottom, *parting, top]
    return bounds[builder], bounds[builder + 1]


def _carried_out(orders: Orders, house: House) -> str:
    lines = [*[_KILL] * orders.num_kills, *(command(fill, house.blocks) for fill in orders.fills)]
    return "Your commands that were carried out:\n" + ("\n".join(lines) or "none")


def _stock(house: House, stock: Mapping[int, int]) -> str:
    return ", ".join(f"{count} {house.blocks[block]}" for block, count in stock.items() if house.stock[block])


def _rectangles(fills: Sequence[Fill], house: House) -> str:
    return "; ".join(f"{f.x1} {f.z1} {f.x2} {f.z2} {house.blocks[f.block]}" for f in fills) or "nothing"


def _layer(house: House, y: int) -> list[Fill]:
    return [fill for fill in house.rectangles if fill.y1 == y and fill.block != AIR]


def _tuples(house: House, y: int) -> str:
    return ", ".join(f"({f.x1}, {f.z1}, {f.x2}, {f.z2} {house.blocks[f.block]})" for f in _layer(house, y))


def _by_height(fills: Sequence[Fill], house: House) -> str:
    return "; ".join(f"{f.y1}: {_rectangles([f], house)}" for f in fills) or "nothing"


def _cells(found: Sequence[tuple[int, int, int, int]], house: House) -> str:
    return "; ".join(f"{x} {y} {z} {house.blocks[block]}" for x, y, z, block in found) or "nothing"
