"""Prompts, feedback and replies of ResourceGathering."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ..fog import Cell, action, as_json, cell, listed, walk
from .rules import RESOURCES, TOOLS, Amounts, Fact, Land, Settings, State, true_facts, visible

_KEYS = frozenset({"comm", "path"})
_HEAP = re.compile(r"\(?\s*(\d+)\s*,\s*(\d+)\s*,\s*(\d+)\s*\)?")

PROMPT = """\
You are gatherer {number} of a team of two. You can take {own}; your partner can take {other}. Both of you write at \
the same time.
The map: x = 0..{x} to the right, z = 0..{z} downwards. You see the cells up to {view} away from wherever you have been.
The team wants {goal}, within {turns} turns.
Each turn you walk at most {steps} steps, each to any of the eight cells around. Where the walk ends you take all that \
you can at most {reach} away, counted along x and z together.
You may tell your partner {facts} of what you can see: best, what it can take and cannot see.
Reply with one JSON object and nothing else:
{{"comm": {{"resource_facts": [{{"x": 1, "z": 2, "type": "wood", "count": 3}}]}}, "path": [[x, z], [x, z]]}}
path goes cell by cell from where you are; without anything to tell, comm is {{}}.
{state}"""
_STATE = """\
You are at {place}. {partner}
You see, as x z: {seen}.
The team has {gathered}.
Your partner tells: {told}."""

_TRUTH = """\
Gatherer 1 is at {first}, gatherer 2 at {second}.
On the map, as x z: {things}.
Have been at work: {entered}. Usefulness told: {helped}."""


def fields(land: Land, state: State, gatherer: int, *, settings: Settings, turns: int) -> dict[str, str | int]:
    return dict(
        number=gatherer + 1,
        own=" and ".join(TOOLS[gatherer]),
        other=" and ".join(TOOLS[1 - gatherer]),
        x=land.width - 1,
        z=land.depth - 1,
        view=settings.view,
        goal=_amounts(land.goal),
        turns=turns,
        steps=settings.max_steps,
        reach=settings.reach,
        facts="one thing" if settings.max_facts == 1 else f"{settings.max_facts} things",
        state=state_text(land, state, gatherer, settings=settings, told=()),
    )


def state_text(land: Land, state: State, gatherer: int, *, settings: Settings, told: Sequence[Fact]) -> str:
    """Return the text of the visible cells, the gathered amounts and the received facts."""
    seen = visible(land, state, gatherer, settings)
    partner = state.places[1 - gatherer]
    return _STATE.format(
        place=listed([state.places[gatherer]]),
        partner=f"Your partner is at {listed([partner])}." if partner in seen else "You do not see your partner.",
        seen=_things({place: amounts for place, amounts in state.lies.items() if place in seen}),
        gathered=_amounts(state.gathered) or "nothing",
        told="; ".join(f"{fact.cell[0]} {fact.cell[1]} {fact.amount} {fact.resource}" for fact in told) or "nothing",
    )


def truth_text(state: State) -> str:
    """Return the hidden state: positions, all resources of the map, and the events that were already rewarded.

    Gatherer 1 is at 0 0, gatherer 2 at 5 2.
    On the map, as x z: 3 1 2 wood; 4 2 1 stone, 1 iron.
    Have been at work: gatherer 1. Usefulness told: 0.50 0.00.
    """
    first, second = (listed([place]) for place in state.places)
    entered = [f"gatherer {number}" for number, has in enumerate(state.has_entered, start=1) if has]
    return _TRUTH.format(
        first=first,
        second=second,
        things=_things(state.lies),
        entered=", ".join(entered) or "none",
        helped=" ".join(f"{share:.2f}" for share in state.helped),
    )


def _things(lies: Mapping[Cell, Amounts]) -> str:
    found = sorted(lies.items(), key=lambda thing: (thing[0][1], thing[0][0]))
    return "; ".join(f"{x} {z} {_amounts(amounts)}" for (x, z), amounts in found) or "nothing"


def parsed_action(
    reply: str, land: Land, state: State, gatherer: int, settings: Settings
) -> tuple[tuple[Cell, ...], list[Fact]]:
    """Parse a reply. Return its legal walk and its true facts."""
    wanted = action(reply, _KEYS)
    path = walk(wanted.get("path"), state.places[gatherer], land.width, land.depth, settings.max_steps)
    comm = wanted.get("comm")
    claims = comm.get("resource_facts") if isinstance(comm, Mapping) else None
    return path, true_facts(land, state, gatherer, _claims(claims), settings)


def reply(path: Sequence[Cell], facts: Sequence[Fact]) -> str:
    told = [{"x": fact.cell[0], "z": fact.cell[1], "type": fact.resource, "count": fact.amount} for fact in facts]
    return json.dumps({"comm": {"resource_facts": told} if told else {}, "path": as_json(path)})


def land(row: Mapping[str, Any]) -> Land:
    """Convert a row with the benchmark's columns to a task.

    Args:
        row: "task_id"; "goal" with "wood", "stone" and "iron"; and "rows", lines of cells with spaces between them: "."
            is empty, "(w,s,i)" has amounts of wood, stone and iron, "A" and "B" are the starts of the gatherers.

    Raises:
        ValueError: if the row has other columns or types, the rows differ in length, a cell has another text, or a
            start is missing.
    """
    name = str(row["task_id"])
    goal = row["goal"]
    if not isinstance(row["rows"], list) or not isinstance(goal, Mapping) or not set(RESOURCES) <= goal.keys():
        raise ValueError(
            f"{name}: rows must be a list of texts, and goal must have the keys wood, stone and iron; got "
            f"{row['rows']!r} and {goal!r}"
        )
    grid = [str(line).split() for line in row["rows"]]
    if len({len(line) for line in grid}) != 1:
        raise ValueError(f"{name}: all rows of a map must have the same length, got {[len(line) for line in grid]}")
    lies: dict[Cell, Amounts] = {}
    starts: dict[str, Cell] = {}
    for z, line in enumerate(grid):
        for x, token in enumerate(line):
            heap = _HEAP.fullmatch(token)
            if heap:
                lies[x, z] = (int(heap[1]), int(heap[2]), int(heap[3]))
            elif set(token) <= set("AB"):
                starts.update(dict.fromkeys(token, (x, z)))
            elif token != ".":
                raise ValueError(f"{name}: a cell must be '.', '(w,s,i)', 'A' or 'B', got {token!r} at x={x}, z={z}")
    if starts.keys() != {"A", "B"}:
        raise ValueError(f"{name}: a map needs an A and a B, where the gatherers begin, got {sorted(starts)}")
    wanted = (_amount(name, goal["wood"]), _amount(name, goal["stone"]), _amount(name, goal["iron"]))
    lies = {place: amounts for place, amounts in lies.items() if any(amounts)}
    return Land(name, len(grid[0]), len(grid), lies, (starts["A"], starts["B"]), wanted)


def row(task: Land) -> dict[str, Any]:
    """Convert a task to a row of data. This is the inverse of `land`."""
    grid = [["."] * task.width for _ in range(task.depth)]
    for (x, z), amounts in task.lies.items():
        grid[z][x] = "({},{},{})".format(*amounts)
    for name, (x, z) in zip("AB", task.starts, strict=True):
        grid[z][x] = name if grid[z][x] == "." else grid[z][x] + name
    return {
        "task_id": task.id,
        "goal": dict(zip(RESOURCES, task.goal, strict=True)),
        "rows": [" ".join(line) for line in grid],
    }


def _amount(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{name}: an amount of the goal must be a whole number, got {value!r}")
    return value


def _claims(value: Any) -> list[tuple[Cell, str]]:
    claims = []
    for part in value if isinstance(value, list) else []:
        place = cell(part) if isinstance(part, Mapping) else None
        kind = part.get("type") if isinstance(part, Mapping) else None
        if place is not None and isinstance(kind, str):
            claims.append((place, kind.strip().lower()))
    return claims


def _amounts(amounts: Amounts) -> str:
    return ", ".join(f"{amount} {name}" for amount, name in zip(amounts, RESOURCES, strict=True) if amount)
