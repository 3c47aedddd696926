"""Rows move, park, return and are evicted, and each claim still finds what it left."""

import numpy as np
import pytest

from collm.agents.decoding.samples import Prompt
from collm.agents.decoding.slots import Claim, SlotTable


class Rows:
    """Stands for an arena: the token ids stored in each row, moved by the table's moves."""

    def __init__(self, num_rows):
        self.held = [np.zeros(0, np.int64)] * num_rows

    def move(self, moves):
        if moves is not None:
            copies = [self.held[source][: moves.width] for source in moves.sources]
            for target, copy in zip(moves.targets, copies, strict=True):
                self.held[target] = copy


def claim(owner, ids, max_new_tokens=2, key=None):
    return Claim(owner, Prompt(ids, (), max_new_tokens, parked=key))


def key_of(handle):
    return Prompt([0], (), 1, parked=handle).key


def park(table, ids, key="a", wanted=()):
    """Start and end a completion of these tokens, and return how many of them were cached before."""
    [seat] = table.admit([claim(0, ids, key=key)], wanted)
    table.retire([0])
    table.remember(key_of(key), np.array(ids))
    return seat.num_kept


@pytest.mark.parametrize(("ids", "num_kept"), [([5, 6, 7, 9, 9], 3), ([5, 6], 1), ([6], 0)])
def test_a_parked_row_keeps_what_the_next_prompt_begins_with_except_its_last_token(ids, num_kept):
    table = SlotTable(4)
    park(table, [5, 6, 7, 8])
    assert park(table, ids) == num_kept


def test_active_rows_are_a_prefix_and_tell_which_one_drew_their_next_token():
    table = SlotTable(6)
    table.admit([claim(owner, [1, 2]) for owner in range(5)], ())
    table.retire([0, 3])
    assert table.num_active == 3
    assert sorted(table.owner[:3]) == [1, 2, 4]
    table = SlotTable(4)
    table.admit([claim(number, [number + 1]) for number in range(3)], ())
    assert table.previous[:3].tolist() == [-1, -1, -1]
    table.previous[:3] = range(3)
    table.retire([0])
    table.admit([claim(3, [9])], ())
    by_owner = dict(zip(table.owner[:3].tolist(), table.previous[:3].tolist(), strict=True))
    assert by_owner == {1: 1, 2: 2, 3: -1}


def test_the_oldest_row_that_no_one_waits_for_is_evicted_and_clear_evicts_all():
    table = SlotTable(2)
    park(table, [1, 2, 3], "a")
    park(table, [1, 2, 3], "b")
    park(table, [9, 9], "c", {key_of("a")})
    assert park(table, [1, 2, 3, 4], "a") == 3
    assert park(table, [1, 2, 3, 4], "b") == 0
    table.clear()
    assert park(table, [1, 2, 3], "a") == 0


@pytest.mark.parametrize("seed", range(20))
def test_rows_hold_their_own_tokens_through_any_history(seed):
    rng = np.random.default_rng(seed)
    max_active, max_rows = int(rng.integers(1, 6)), int(rng.integers(6, 12))
    table, rows = SlotTable(max_rows), Rows(max_rows)
    histories = {key: rng.integers(0, 9, 3) for key in range(9)}
    for _ in range(30):
        keys = rng.permutation(9)[: rng.integers(1, 9)].tolist()
        queue = [claim(key, histories[key], int(rng.integers(1, 5)), key if key < 7 else None) for key in keys]
        while queue or table.num_active:
            if queue and rng.random() < 0.7:
                count = min(len(queue), max_active - table.num_active)
                batch, queue = queue[:count], queue[count:]
                seats = table.admit(batch, {later.prompt.key for later in queue})
                rows.move(table.take_moves())
                for seat in seats:
                    assert seat.claim.ids[: seat.num_kept].tolist() == rows.held[seat.row][: seat.num_kept].tolist()
                    rows.held[seat.row] = seat.claim.ids[:-1]
            for row in range(table.num_active):
                owner, column = table.owner[row], table.column[row]
                assert rows.held[row][:column].tolist() == histories[owner][:column].tolist()
                rows.held[row] = np.append(rows.held[row][:column], table.token[row])
                table.column[row] += 1
                table.token[row] = rng.integers(0, 9)
                histories[owner] = np.append(rows.held[row], table.token[row])
            table.retire([row for row in range(table.num_active) if table.column[row] == table.end[row]])
            rows.move(table.take_moves())
        for key in keys:
            if key < 7:
                table.remember(key_of(key), histories[key][:-1])
            if rng.random() < 0.1:
                histories[key] = rng.integers(0, 9, int(rng.integers(1, 6)))
            histories[key] = np.append(histories[key], rng.integers(0, 9, int(rng.integers(0, 4))))


def test_rows_behind_a_limit_are_dropped_and_never_used_again():
    table = SlotTable(6)
    table.admit([claim(number, [5, 6, number], key=number) for number in range(5)], ())
    table.retire(range(5))
    for number in range(5):
        table.remember(key_of(number), np.array([5, 6, number]))
    table.limit(3)
    assert (table.num_parked, table.num_used) == (3, 3)
    seats = table.admit([claim(number, [5, 6, number, 7], key=number) for number in (4, 0, 3)], ())
    assert sorted((seat.claim.owner, seat.num_kept) for seat in seats) == [(0, 3), (3, 0), (4, 0)]
    table.retire(range(3))
    assert table.num_used == 3
