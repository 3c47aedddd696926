"""Prompts and feedback of HouseBuild. `games.commands` parses the replies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from ...templates import Originals
from ..blocks import AIR, Fill, cells
from ..building import (
    ORIGINAL_CONSTANTS,
    PUBLISHED_SYSTEM,
    BuilderTurn,
    WorldRule,
    leaving_words,
    share_advised,
    team_words,
)
from ..commands import Orders, command, counted, run_order
from .rules import (
    HIT_POINTS,
    MAX_COMMANDS,
    House,
    HouseScore,
    affordable_rectangles,
    rectangles_to_mend,
    stock_left,
    wrong_cells,
)

Feedback = Literal["score", "perfect", "position", "position_modification", "rect_modification", "resource_schedule"]

_KILL = "/kill"
_SHARED_HEIGHT = 2  # highest layer in the first builder's feedback, and lowest layer in the second builder's

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
_PUBLISHED = """\
You are agent {number} of a team of {team} that builds in Minecraft. You place a part of the blocks of the building.

Task: build the structure that is given in slices along the y axis.

Slices, from the lowest y to the highest. A slice lists rectangles of blocks: x1 z1 x2 z2 block
{layers}

The world, bounds included: {box}

Rules:
- Write Minecraft commands only, one per line; /fill is the only allowed command
- Form: /fill x1 y1 z1 x2 y2 z2 block
- Use absolute integers as coordinates, no ~
- Use only the blocks below
- Keep all coordinates within the bounds

Blocks that you may use, and no others, with the number of cells that each agent may fill: {stock}. Air has no limit."""
PUBLISHED = {"system": PUBLISHED_SYSTEM, "prompt": _PUBLISHED}
"""Prompts with the content of the published prompts, in other words."""
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


def fields(
    house: House, builder: int, *, attacks: Sequence[int], turns: int, world: WorldRule, can_leave: bool = False
) -> dict[str, str | int]:
    return dict(
        **team_words(house.num_builders),
        number=builder + 1,
        order=run_order(builder, house.num_builders),
        box=_BOX.format(house.box.lower, house.box.upper),
        layers="\n".join(
            f"y={y}: {_rectangles([fill for fill in house.rectangles if fill.y1 == y and fill.block != AIR], house)}"
            for y in range(house.box.y, house.box.y + house.box.height)
        ),
        stock=_stock(house, house.stock),
        block_list="\n".join(f"- {house.blocks[block]}" for block in (*house.stock, AIR)),
        slices="\n".join(f"y={y}: {{{_tuples(house, y)}}}" for y in range(house.box.y, house.box.upper[1] + 1)),
        lower=str(list(house.box.lower)),
        upper=str(list(house.box.upper)),
        stock_list="\n".join(f"- {house.blocks[block]}: {count}" for block, count in house.stock.items()),
        spiders=_SPIDERS.format(
            num=len(attacks), attacks=" + ".join(map(str, attacks)), total=sum(attacks), hit_points=HIT_POINTS
        )
        if sum(attacks)
        else "There are no spiders.",
        turns=turns,
        world=_WORLD_RULES[world],
        limit=MAX_COMMANDS,
        leaving=leaving_words(can_leave, world),
    )


def reply(fills: Iterable[Fill], house: House, *, is_killing: bool) -> str:
    return "\n".join([*([_KILL] if is_killing else []), *(command(fill, house.blocks) for fill in fills)])


def feedback(mode: Feedback, turn: BuilderTurn[House, HouseScore], *, limit: int) -> str:
    """Return the feedback of a turn.

    Args:
        mode: kind of feedback; see `HouseBuild`.
        turn: data of the builder's turn.
        limit: maximum number of cells or rectangles in the two modification modes.
    """
    house, world, builder, orders, rule = turn.task, turn.world, turn.builder, turn.orders, turn.world_rule
    match mode:
        case "score":
            return _score_feedback(turn.value, turn.score, orders)
        case "perfect":
            return _perfect_feedback(wrong_cells(house, world), builder, house, orders, rule)
        case "position":
            return _position_feedback(house, list(cells(house.target, house.box)), orders)
        case "position_modification":
            return _position_modification(wrong_cells(house, world), limit, house, orders, rule)
        case "rect_modification":
            return _rect_modification(rectangles_to_mend(house, world), limit, builder, house, orders, rule)
        case "resource_schedule":
            left = stock_left(house, orders.fills)
            return _resource_schedule(affordable_rectangles(house, left), left, house, orders)


def _score_feedback(value: float, score: HouseScore, orders: Orders) -> str:
    """Return the feedback of mode "score": the reward and the damage."""
    hurt = f" The spiders took {score.damage:.0%} of your hit points." if score.damage else ""
    return f"Score {value:.4f}. {counted(orders)}{hurt}"


def _perfect_feedback(
    wrong: Sequence[tuple[int, int, int, int]], builder: int, house: House, orders: Orders, rule: WorldRule
) -> str:
    """Return the feedback of mode "perfect": all wrong cells from the top, divided between the builders."""
    from_the_top = sorted(wrong, key=lambda cell: (-cell[1], cell[0], cell[2]))
    own = from_the_top[builder :: house.num_builders]
    return f"{counted(orders)} To change, as x y z block: {_cells(own, house)}.{_AGAIN[rule]}"


def _position_feedback(house: House, wanted: Sequence[tuple[int, int, int, int]], orders: Orders) -> str:
    """Return the feedback of mode "position": all cells of the house, and the advice to build an equal part."""
    from_the_top = sorted(wanted, key=lambda cell: (-cell[1], cell[0], cell[2]))
    return (
        f"{counted(orders)} The cells of the house, as x y z block: {_cells(from_the_top, house)}. "
        f"{share_advised(len(wanted), house.num_builders)}."
    )


def _position_modification(
    wrong: Sequence[tuple[int, int, int, int]], limit: int, house: House, orders: Orders, rule: WorldRule
) -> str:
    """Return the feedback of mode "position_modification": the lowest wrong cells, the same for all builders."""
    from_below = sorted(wrong, key=lambda cell: (cell[1], cell[0], cell[2]))[:limit]
    return f"{counted(orders)} To change, as x y z block: {_cells(from_below, house)}.{_AGAIN[rule]}"


def _rect_modification(
    fills: Sequence[Fill], limit: int, builder: int, house: House, orders: Orders, rule: WorldRule
) -> str:
    """Return the feedback of mode "rect_modification": rectangles with errors, the lowest for the first builder."""
    lowest, highest = _heights(house, builder)
    own = [fill for fill in fills if lowest <= fill.y1 <= highest][:limit]
    return f"{_carried_out(orders, house)}\nTo mend, as y: x1 z1 x2 z2 block: {_by_height(own, house)}.{_AGAIN[rule]}"


def _heights(house: House, builder: int) -> tuple[int, int]:
    bottom, top = house.box.y, house.box.upper[1]
    team = house.num_builders
    # For two builders the boundary is that of the published game; for more, layers are divided evenly.
    parting = [_SHARED_HEIGHT] if team == 2 else [bottom + (top - bottom) * i // team for i in range(1, team)]
    bounds = [bottom, *parting, top]
    return bounds[builder], bounds[builder + 1]


def _resource_schedule(fills: Sequence[Fill], left: Mapping[int, int], house: House, orders: Orders) -> str:
    """Return the feedback of mode "resource_schedule": the rest of the stock, and rectangles to build from it."""
    return (
        f"{_carried_out(orders, house)}\nStock left over: {_stock(house, left)}.\n"
        f"It would do for, as y: x1 z1 x2 z2 block: {_by_height(fills, house)}."
    )


def _carried_out(orders: Orders, house: House) -> str:
    lines = [*[_KILL] * orders.num_kills, *(command(fill, house.blocks) for fill in orders.fills)]
    return "Your commands that were carried out:\n" + ("\n".join(lines) or "none")


def _stock(house: House, stock: Mapping[int, int]) -> str:
    return ", ".join(f"{count} {house.blocks[block]}" for block, count in stock.items() if house.stock[block])


def _rectangles(fills: Sequence[Fill], house: House) -> str:
    return "; ".join(f"{f.x1} {f.z1} {f.x2} {f.z2} {house.blocks[f.block]}" for f in fills) or "nothing"


def _tuples(house: House, y: int) -> str:
    layer = [f for f in house.rectangles if f.y1 == y and f.block != AIR]
    return ", ".join(f"({f.x1}, {f.z1}, {f.x2}, {f.z2} {house.blocks[f.block]})" for f in layer)


def _by_height(fills: Sequence[Fill], house: House) -> str:
    return "; ".join(f"{f.y1}: {_rectangles([f], house)}" for f in fills) or "nothing"


def _cells(found: Sequence[tuple[int, int, int, int]], house: House) -> str:
    return "; ".join(f"{x} {y} {z} {house.blocks[block]}" for x, y, z, block in found) or "nothing"
