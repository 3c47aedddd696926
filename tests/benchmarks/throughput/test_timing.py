"""Rates of workloads that take turns, and seconds by phase, on a clock made by hand."""

from __future__ import annotations

import pytest

from collm.benchmarks.throughput import timing
from collm.benchmarks.throughput.timing import Stopwatch, cpu_rates, timed_rounds


@pytest.fixture
def clock(monkeypatch):
    """Sets what the process's clock says, call by call."""

    def ticks(*seconds):
        clock = iter(seconds)
        monkeypatch.setattr(timing.time, "process_time", lambda: next(clock))

    return ticks


def test_a_rate_is_the_median_over_rounds_without_the_first(clock):
    clock(0, 99, 0, 1, 0, 2, 0, 50)
    assert cpu_rates({"one": lambda: 10}, num_rounds=3) == {"one": 5}


def test_workloads_take_turns(clock):
    clock(*range(12))
    calls = []
    found = timed_rounds({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, num_rounds=2)
    assert calls == ["a", "b"] * 3
    assert found == {"a": [(None, 1), (None, 1)], "b": [(None, 1), (None, 1)]}


class Work:
    def outer(self):
        return self.inner() + 1

    def inner(self):
        return 1


def test_a_phase_inside_another_counts_for_itself_alone(clock):
    clock(0, 2, 5, 6)  # outer starts, inner starts, inner ends, outer ends
    work, watch = Work(), Stopwatch()
    watch.watch("outer", work, "outer")
    watch.watch("inner", work, "inner")
    assert work.outer() == 2
    assert watch.seconds == {"outer": 3, "inner": 3}
