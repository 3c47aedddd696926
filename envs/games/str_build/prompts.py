"""Prompts and feedback of StrBuild. `games.commands` parses the replies."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from ...templates import Originals
from ..blocks import Fill
from ..building import ORIGINAL_CONSTANTS, BuilderTurn, WorldRule, share_advised
from ..commands import command, counted
from .rules import BLOCKS, MAX_COMMANDS, PALETTES, Word, WordScore, missing

Feedback = Literal["perfect", "position", "score"]

PROMPT = """\
You are builder {number} of a team of {team} that builds a word out of blocks. {writing} {order}
The world is a wall one block thick: x = 0..{x} from left to right, y = 0..{y} from the bottom to the top, z = 0.
{target}Your blocks: {own}. {other}. You may also set air.
Rules of the score: a block in every cell of the letters, none elsewhere; blocks that touch along a side must be of \
different kinds; each of you must use both of your kinds{division}. So each of you builds a part of the letters.
You have {turns} turns. {world}
Reply with commands only, one a line, at most {limit}: /setblock <x> <y> <z> <block>{leaving}"""
ORIGINALS = Originals(
    "str_build/utils/prompting.py",
    ORIGINAL_CONSTANTS,
    {
        "target_ascii": "{rows}",
        "world_bbox_from": "[0,0,0]",
        "world_bbox_to": "[{x},{y},0]",
        "block_agent1_lines": "{block_list}",
        "block_agent2_lines": "{block_list}",
    },
)
"""Prompts of github.com/OpenMLRL/LLM_Collab_Minecraft."""
ABOUT_TARGET = ("#'", "'.'", "Target grid", "{rows}")
"""Texts in the lines that the published code leaves out if it hides the target."""
_TARGET = "The word, from its top row down, # for a cell of a letter:\n{rows}\n"
_HIDDEN = "You will be told after the first turn where the letters are.\n"
_WORLD_RULES = {
    "rebuilt": "Each turn starts from an empty wall: repeat what was right.",
    "kept": "What stands stays for the next turn.",
}


def fields(
    task: Word, builder: int, world: WorldRule, *, shows_target: bool, is_divided: bool, tells_hidden: bool = True
) -> dict[str, str | int]:
    x, y, _ = task.box.upper
    return {
        "x": x,
        "y": y,
        "target": _target(task) if shows_target else _HIDDEN * tells_hidden,
        "own": _names(builder),
        "block_list": "\n".join(f"- {block}" for block in (*(BLOCKS[kind] for kind in PALETTES[builder]), "air")),
        "rows": "\n".join(task.rows),
        "division": f", in {task.quota} cells of the letters or more" if is_divided else "",
        "other": _partners(builder, task.num_builders),
        "world": _WORLD_RULES[world],
        "limit": MAX_COMMANDS,
    }


def reply(fills: Iterable[Fill]) -> str:
    return "\n".join(command(fill, BLOCKS, "setblock") for fill in fills)


def feedback(mode: Feedback, turn: BuilderTurn[Word, WordScore], *, is_reminded: bool) -> str:
    """Return the feedback of a turn. With `is_reminded`, mode "score" shows the word, which was hidden before."""
    task, score, done = turn.task, turn.score, counted(turn.orders)
    if mode == "position":
        top = len(task.rows) - 1
        cells = [(x, top - row) for row, line in enumerate(task.rows) for x, dot in enumerate(line) if dot == "#"]
        listed = ", ".join(f"{x} {y}" for x, y in cells)
        advice = share_advised(len(cells), task.num_builders)
        return (
            f"{done} The cells of the letters, as x y: {listed}. {advice}, if you can no two that touch along a side."
        )
    if mode == "perfect":
        fills = missing(task, turn.world, turn.builder)
        changes = "; ".join(f"{fill.x1} {fill.y1} {BLOCKS[fill.block]}" for fill in fills) or "nothing"
        rest = " Repeat all else that you built." if turn.world_rule == "rebuilt" else ""
        return f"{done} To change, as x y block: {changes}.{rest}"
    text = (
        f"Score {turn.value:.4f}. Letters covered {score.coverage:.3f}, blocks beside them {score.extra:.3f}, "
        f"equal neighbours {score.same_neighbours:.3f}, builders with an unused kind {score.num_idle}. {done}"
    )
    return f"{text}\n{_target(task)}" if is_reminded else text


def _target(task: Word) -> str:
    return _TARGET.format(rows="\n".join(task.rows))


def _names(builder: int) -> str:
    return ", ".join(BLOCKS[block] for block in PALETTES[builder])


def _partners(builder: int, num_builders: int) -> str:
    if num_builders == 2:
        return f"Your partner's: {_names(1 - builder)}"
    others = [other for other in range(num_builders) if other != builder]
    return "Your partners': " + "; ".join(f"builder {other + 1} {_names(other)}" for other in others)
