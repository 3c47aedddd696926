"""Prompts, feedback and replies of BridgeBuild."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Literal

from ..blocks import Box, Fill
from ..commands import allowed, read_orders
from ..fog import Cell, action, as_json, cell, is_on_map, listed, message, num_words, walk
from .rules import BLOCKS, MAX_COMMANDS, PLANK, Action, Bridge, State, plank_cells, visible

Reward = Literal["priced", "reference"]

_KEYS = frozenset({"comm", "probe", "cmds", "path"})

PROMPT = """\
You are worker {number} of a team of two that builds a bridge. Worker 1 begins at S, worker 2 at T. Both of you write \
at the same time.
The map: x = 0..{x} to the right, z = 0..{z} downwards. S is at {start}, T at {end}.
You see the cells up to {view} away from wherever you have been:
? unseen, # land, . water, = plank, P a pillar of unknown kind, Y a true pillar, N a false one.
The goal: S and T joined side by side by planks and pillars; land does not carry. Beside every true pillar there must \
be a plank, beside a false one none. Planks never cover pillars.
{costs} You have {turns} turns; when S and T are joined it is over.
Reply with one JSON object and nothing else:
{{"comm": "a message to your partner, or empty", "probe": [[x, z]], "cmds": ["/fill x1 z1 x2 z2 oak_planks"], \
"path": [[x, z], [x, z]]}}
probe: up to {probes} cells whose kind you want to know. cmds: up to {commands}, of oak_planks or air{reach}. path: \
where you walk, cell by cell from where you are, to any of the eight cells around at each step{steps}.
{state}"""
_COSTS = {
    "priced": "Worth 5: each true pillar that gets a plank. Worth 10: S and T joined. Each false pillar that gets a "
    "plank costs 8, each plank {plank:.2f}, each probe 0.3, each word of a message 0.001. Each of these counts once, "
    "and what was laid wrong stays paid for.",
    "reference": "Each turn costs: 5 while S and T are apart, 2 for each true pillar without a plank, 1 for each false "
    "pillar with one, 0.3 for each probe, 0.001 for each word of a message.",
}
_STATE = """\
You are at {place}.
{map}
Probed: {probed}.
Your partner says: {message}"""
_PROBED = {"Y": "a true pillar", "N": "a false pillar"}
_TRUTH = """\
{map}
Worker 1 is at {first}, worker 2 at {second}.
Planks on S or T: {on_ends}. Planks taken away: {taken}. Pillars that have had a plank beside them: {touched}."""


def fields(
    bridge: Bridge,
    state: State,
    worker: int,
    *,
    view: int,
    turns: int,
    max_probes: int,
    max_steps: int | None,
    reward: Reward,
    reached: tuple[Box, Box],
) -> dict[str, str | int]:
    return dict(
        number=worker + 1,
        x=bridge.width - 1,
        z=bridge.depth - 1,
        start=listed(bridge.cells("S")),
        end=listed(bridge.cells("T")),
        view=view,
        turns=turns,
        probes=max_probes,
        commands=MAX_COMMANDS // 2,
        steps="" if max_steps is None else f", at most {max_steps} steps",
        reach=_reach(bridge, reached[worker], reached[1 - worker]),
        costs=_COSTS[reward].format(plank=5 / bridge.num_placeable),
        state=state_text(bridge, state, worker, view=view, heard=""),
    )


def _reach(bridge: Bridge, own: Box, other: Box) -> str:
    """Return the words about the part of the map in which each worker can lay planks; empty for the whole map."""
    if own == other == bridge.box:
        return ""
    axis = 0 if own.width < bridge.width or other.width < bridge.width else 2
    first, second = (f"{'xyz'[axis]} = {box.lower[axis]}..{box.upper[axis]}" for box in (own, other))
    return f", at {first} alone (your partner: {second})"


def state_text(bridge: Bridge, state: State, worker: int, *, view: int, heard: str) -> str:
    """Return the text of the visible cells, the probed cells and the received message."""
    known = state.probed[worker]
    return _STATE.format(
        place=listed([state.places[worker]]),
        map="\n".join(fogged_rows(bridge, state, worker, view)),
        probed="; ".join(f"{x} {z} is {_PROBED.get(bridge.rows[z][x], 'no pillar')}" for x, z in sorted(known))
        or "nothing",
        message=heard or "nothing",
    )


def fogged_rows(bridge: Bridge, state: State, worker: int, view: int) -> list[str]:
    """Return the rows of the map as a worker sees them, with "?" for unseen cells."""
    seen, known = visible(bridge, state, worker, view), state.probed[worker]
    rows = []
    for z, row in enumerate(bridge.rows):
        line = ""
        for x, kind in enumerate(row):
            if kind in "ST" or (x, z) in known:
                line += kind
            elif (x, z) not in seen:
                line += "?"
            else:
                line += "=" if state.world[0, z, x] else "P" if kind in "YN" else kind
        rows.append(line)
    return rows


def parsed_action(
    reply: str, bridge: Bridge, place: Cell, reached: Box, max_probes: int, max_steps: int | None
) -> tuple[Action, str]:
    """Parse a reply. Return its legal action and its message.

    Commands outside of `reached`, the worker's part of the map, are illegal. Probes after `max_probes` and steps after
    `max_steps` are ignored.
    """
    wanted = action(reply, _KEYS)
    said = message(wanted.get("comm"))
    lines = wanted.get("cmds")
    orders = read_orders(
        "\n".join(_lifted(line) for line in lines) if isinstance(lines, list) else "",
        reached,
        allowed(BLOCKS, (PLANK,)),
        verb="fill",
        max_commands=MAX_COMMANDS // 2,
    )
    path = walk(wanted.get("path"), place, bridge.width, bridge.depth, max_steps)
    probes = _probes(wanted.get("probe"), bridge, max_probes)
    return Action(orders.fills, probes, path, num_words(said), orders.num_rejected), said


def reply(
    fills: Sequence[Fill], place: Cell, *, walk: Sequence[Cell] = (), probes: Sequence[Cell] = (), message: str = ""
) -> str:
    """Format an action as a reply. Without a walk, the worker stays in its cell."""
    lines = [f"/fill {fill.x1} {fill.z1} {fill.x2} {fill.z2} {BLOCKS[fill.block]}" for fill in fills]
    return json.dumps({"comm": message, "probe": as_json(probes), "cmds": lines, "path": as_json(walk or [place])})


def _lifted(line: Any) -> str:
    """Insert y = 0 into a command that has only x and z. Other lines stay illegal."""
    words = str(line).split() if isinstance(line, str) and "`" not in line else []
    if len(words) != 6:
        return "no command"
    name, x1, z1, x2, z2, block = words
    return f"{name} {x1} 0 {z1} {x2} 0 {z2} {block}"


def _probes(value: Any, bridge: Bridge, max_probes: int) -> tuple[Cell, ...]:
    cells = [cell(part) for part in value] if isinstance(value, list) else []
    return tuple(c for c in cells if c is not None and is_on_map(c, bridge.width, bridge.depth))[:max_probes]


def truth_text(bridge: Bridge, state: State) -> str:
    """Return the hidden state: the whole map with planks, and the events that were already rewarded.

    S.=YN=T
    Worker 1 is at 0 0, worker 2 at 6 0.
    Planks on S or T: none. Planks taken away: 1 0. Pillars that have had a plank beside them: 3 0, 4 0.
    """
    planks = plank_cells(state.world)
    first, second = (listed([place]) for place in state.places)
    return _TRUTH.format(
        map="\n".join(map("".join, whole_map(bridge, state))),
        first=first,
        second=second,
        on_ends=listed(planks & bridge.cells("ST")),
        taken=listed(state.laid - planks),
        touched=listed(state.touched),
    )


def whole_map(bridge: Bridge, state: State) -> list[list[str]]:
    """Return the kinds of all cells by row, with planks on land and water."""
    planks = plank_cells(state.world)
    return [
        ["=" if kind in "#." and (x, z) in planks else kind for x, kind in enumerate(row)]
        for z, row in enumerate(bridge.rows)
    ]
