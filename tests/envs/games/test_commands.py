"""From replies to orders."""

from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collm.envs.games.blocks import Box, Fill
from collm.envs.games.commands import Orders, allowed, command, read_orders

BOX = Box(width=6, height=7, depth=5)
NAMES = ("air", "stone", "planks", "obsidian")
BLOCKS = allowed(NAMES, (1, 2))


setblocks, fills = (
    partial(read_orders, box=BOX, blocks=BLOCKS, verb=verb, max_commands=5) for verb in ("setblock", "fill")
)


WRAPPED = [
    *["/setblock 1 2 3 stone", "setblock 1 2 3 stone", "  /SetBlock   1\t2 3   minecraft:stone  "],
    *["- /setblock 1 2 3 stone", "12) /setblock 1 2 3 stone", "3. setblock +1 02 3 stone"],
    *["/ setblock 1 2 3 stone", "/setblock 1 2 3 stone replace"],
    "```mcfunction\n/setblock 1 2 3 stone\n```\nDone!",
    "Here you are:\n```\n/setblock 1 2 3 stone\n```",
]


@pytest.mark.parametrize("line", WRAPPED)
def test_a_block_is_set_however_it_is_wrapped(line):
    assert setblocks(line) == Orders((Fill(1, 2, 3, 1, 2, 3, 1),), 0, 0)


ILLEGAL = ["1 2 3", "1 2 3 obsidian", "6 2 3 stone", "1 7 3 stone", "1 2 -1 stone", "~1 2 3 stone", "1.0 2 3 stone"]
ILLEGAL += ["1_0 2 3 stone", "99999999999999999999 2 3 stone", "\u0661 2 3 stone"]
OTHERS = ["/fill 1 2 3 1 2 3 stone", "/kill", "I place a stone.", "/", "```"]


@pytest.mark.parametrize("line", [*(f"/setblock {each}" for each in ILLEGAL), *OTHERS])
def test_what_is_no_legal_command_is_counted_and_left_out(line):
    assert setblocks(line).fills == ()
    assert setblocks(line).num_rejected == (line not in {"/"})


def test_fills_kills_limits_and_list_markers_by_hand():
    assert fills("/fill 5 0 4 0 6 1 planks").fills == (Fill(0, 0, 1, 5, 6, 4, 2),)
    for rest in ("5 6 5 stone", "5 6 4", "5 6 4 stone keep", "5 6 4 obsidian"):
        assert fills(f"/fill 0 0 0 {rest}") == Orders((), 0, 1)
    orders = setblocks("/setblock 1 1 1 stone\n" * 7)
    assert (orders.num_accepted, orders.num_rejected) == (5, 2)
    orders = fills("/kill @e[type=spider]\nkill\n/fill 0 0 0 0 0 0 stone", can_kill=True, max_commands=2)
    assert orders == Orders((), 2, 1)
    reply = "/fill 0 0 0 2 0 0 stone\n/fill 0 1 0 2 1 0 stone\n/fill 0 2 0 0 2 0 stone\n/fill 0 0 0 5 6 4 air"
    orders = fills(reply, stock={1: 4})
    assert [fill.y1 for fill in orders.fills] == [0, 2, 0]
    assert orders.num_rejected == 1
    fill = Fill(0, 1, 2, 3, 4, 4, 2)
    assert fills(command(fill, NAMES)).fills == (fill,)
    cell = Fill(3, 4, 2, 3, 4, 2, 1)
    assert setblocks(command(cell, NAMES, "setblock")).fills == (cell,)
    lines = ["setblock 1 -1 3 stone", "- setblock 1 2 -3 stone", "setblock 3.0 2 3 stone", "/SETBLOCK 1 2 3. stone"]
    lines += ["1) setblock 1 -2 3 stone", "setblock 1 2 3) stone", "setblock 1 *2 3 stone"]
    for line in lines:
        assert setblocks(line) == Orders((), 0, 1)
        assert fills(line.replace("setblock", "fill 0 0 0").replace("SETBLOCK", "fill 0 0 0")) == Orders((), 0, 1)


number = st.one_of(st.integers(-3, 9).map(str), st.sampled_from(["~", "^1", "1e9", "9" * 40, "+2", "-0", "٣", "nan"]))
word = st.one_of(
    number,
    st.sampled_from(["/fill", "/setblock", "fill", "/kill", "stone", "planks", "minecraft:stone", "air", "```", "-"]),
    st.text(max_size=6),
)
line = st.one_of(
    st.lists(word, max_size=11).map(" ".join),
    st.tuples(st.sampled_from(["/fill ", "/setblock "]), st.lists(number, min_size=3, max_size=6), word).map(
        lambda parts: f"{parts[0]}{' '.join(parts[1])} {parts[2]}"
    ),
)
hostile = st.tuples(st.lists(line, max_size=14).map("\n".join), st.integers(0, 400)).map(lambda cut: cut[0][: cut[1]])


def held_within_the_rules(reply):
    for read in (setblocks, fills):
        orders = read(reply, can_kill=read is fills, stock={1: 20})
        assert orders.num_accepted <= 5
        assert sum(fill.volume for fill in orders.fills if fill.block == 1) <= 20
        for fill in orders.fills:
            assert BOX.contains(fill.x1, fill.y1, fill.z1) and BOX.contains(fill.x2, fill.y2, fill.z2)
            assert fill.x1 <= fill.x2 and fill.y1 <= fill.y2 and fill.z1 <= fill.z2
            assert fill.block in (0, 1, 2)


@pytest.mark.parametrize("num_lists", [300, pytest.param(10_000, marks=pytest.mark.slow)])
def test_no_accepted_command_reaches_outside_the_box_or_over_a_limit(num_lists):
    settings(max_examples=num_lists, deadline=None)(given(hostile)(held_within_the_rules))()
