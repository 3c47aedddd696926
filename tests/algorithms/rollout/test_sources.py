"""Collecting ahead of learning: no episode is older than the bound, and speeds change nothing."""

from __future__ import annotations

import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collm.algorithms.rollout.sources import Ahead
from collm.algorithms.rollout.requests import Delivery, Order
from collm.algorithms.rollout.sources import Players

PAUSES = st.sampled_from([0.0, 0.0, 0.0005, 0.002])


class Slow(Players):
    """Plays at a given pace, and counts what is ordered and not yet taken."""

    def __init__(self, pauses):
        self.pauses = pauses
        self.seen = []
        self.is_closed = threading.Event()

    def play(self, order, weights):
        time.sleep(self.pauses[order.update % len(self.pauses)])
        self.seen.append((order.update, order.version, weights["a"]))
        return Delivery([f"episode of update {order.update} by {weights['a']}"])

    def close(self):
        self.is_closed.set()


def order_of(update, version):
    return Order(update, version, (), update * 10)


def through_checkpoint(ahead, version, bound, num_updates, pauses):
    state = ahead.state_dict(version)
    ahead.close()
    again = Ahead(Slow(pauses), bound, num_updates)
    again.load_state_dict(state)
    return again


@settings(max_examples=40)
@given(
    bound=st.integers(0, 4),
    num_updates=st.integers(1, 8),
    playing=st.lists(PAUSES, min_size=1, max_size=4),
    learning=st.lists(PAUSES, min_size=1, max_size=4),
    resumed=st.sets(st.integers(1, 8), max_size=3),
)
def test_staleness_is_the_bound_at_most_whoever_is_faster_and_wherever_a_run_resumes(
    bound, num_updates, playing, learning, resumed
):
    ahead = Ahead(Slow(playing), bound, num_updates)
    for update in range(num_updates):
        order, delivery = ahead.take(update, order_of, lambda: {"a": f"weights {update}"})  # noqa: B023
        assert order.update == update
        assert 0 <= update - order.version <= bound
        # At any speed the same: that many updates old, but where there are not so many yet.
        assert order.version == max(0, update - bound)
        assert delivery.episodes == [f"episode of update {update} by weights {order.version}"]
        assert len(ahead._begun) <= bound
        assert all(each.order.update < num_updates for each in ahead._begun.values())
        time.sleep(learning[update % len(learning)])
        if update + 1 in resumed:
            ahead = through_checkpoint(ahead, update + 1, bound, num_updates, playing)
    ahead.close()


def test_learning_and_playing_go_on_at_the_same_time():
    """The next update's episodes are being played while this one's are learned from: each waits for the other."""
    learning, playing = threading.Event(), threading.Event()

    class Meeting(Slow):
        def play(self, order, weights):
            if order.update == 1:
                playing.set()
                assert learning.wait(10)
            return super().play(order, weights)

    ahead = Ahead(Meeting([0.0]), 1, 2)
    ahead.take(0, order_of, lambda: {"a": 0})
    assert playing.wait(10)
    learning.set()
    ahead.take(1, order_of, lambda: {"a": 1})
    ahead.close()


def test_what_goes_wrong_in_playing_is_raised_by_the_update_that_needs_it_and_keeps_no_checkpoint_from_being_written():
    class Failing(Slow):
        def play(self, order, weights):
            if order.update == 1:
                raise ValueError("no such task")
            return super().play(order, weights)

    ahead = Ahead(Failing([0.0]), 1, 3)
    ahead.take(0, order_of, lambda: {"a": 0})
    assert ahead.state_dict(1)["kept"] == {}
    with pytest.raises(ValueError, match="no such task"):
        ahead.take(1, order_of, lambda: {"a": 1})
    ahead.close()


def test_a_stop_that_is_asked_for_while_an_update_waits_leaves_its_episodes_to_be_taken_again():
    class Asked(Exception):
        pass

    def stop():
        raise Asked

    may_end = threading.Event()

    class Waiting(Slow):
        def play(self, order, weights):
            assert may_end.wait(10)
            return super().play(order, weights)

    ahead = Ahead(Waiting([0.0]), 0, 1)
    with pytest.raises(Asked):
        ahead.take(0, order_of, lambda: {"a": 0}, stop)
    may_end.set()
    assert ahead.take(0, order_of, lambda: {"a": 1})[1].episodes == ["episode of update 0 by 0"]
    ahead.close()
