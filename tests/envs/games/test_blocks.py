"""Worlds of blocks."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collm.envs.games.blocks import Box, Fill, built, cells, cover

BOX = Box(width=4, height=3, depth=2, x=10, y=20, z=30)


@st.composite
def fills(draw):
    ends = [sorted(draw(st.tuples(*[st.integers(low, high)] * 2))) for low, high in ((10, 13), (20, 22), (30, 31))]
    (x1, x2), (y1, y2), (z1, z2) = ends
    return Fill(x1, y1, z1, x2, y2, z2, draw(st.integers(0, 3)))


def test_a_fill_by_hand_never_changes_a_world_under_its_reader():
    world = built(BOX.empty_world(), BOX, [Fill(10, 20, 30, 11, 20, 31, 2), Fill(11, 20, 31, 11, 21, 31, 1)])
    assert world[0].tolist() == [[2, 2, 0, 0], [2, 1, 0, 0]]
    assert world[1].tolist() == [[0, 0, 0, 0], [0, 1, 0, 0]]
    assert next(cells(world, BOX)) == (10, 20, 30, 2)
    empty = BOX.empty_world()
    world = built(empty, BOX, [Fill(10, 20, 30, 13, 22, 31, 1)])
    assert not empty.any()
    with pytest.raises(ValueError, match="read-only"):
        world[0, 0, 0] = 3
    assert BOX.contains(*BOX.lower) and BOX.contains(*BOX.upper)
    assert not any(BOX.contains(*beyond) for beyond in ((9, 20, 30), (14, 20, 30), (10, 23, 30), (10, 20, 29)))


@given(st.lists(fills(), max_size=12))
def test_fills_equal_setting_cell_by_cell_and_cover_builds_the_same_world_again(orders):
    slow = dict.fromkeys(np.ndindex(3, 2, 4), 0)
    for x1, y1, z1, x2, y2, z2, block in orders:
        for x, y, z in product(range(x1, x2 + 1), range(y1, y2 + 1), range(z1, z2 + 1)):
            slow[y - 20, z - 30, x - 10] = block
    world = built(BOX.empty_world(), BOX, orders)
    assert all(world[place] == block for place, block in slow.items())
    again = cover(world, BOX)
    assert np.array_equal(built(BOX.empty_world(), BOX, again), world)
    assert sum(fill.volume for fill in again) == (world != 0).sum()
