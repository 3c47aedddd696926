"""Rates of alternating workloads, the load of other processes, and seconds by phase, on a fake clock."""

import subprocess
import sys
from pathlib import Path

import pytest

from collm.benchmarks.throughput import timing
from collm.benchmarks.throughput.timing import LoadWatch, Spread, Stopwatch, rates, ratio_of, timed_rounds, watching


@pytest.fixture
def clock(monkeypatch):
    def ticks(*seconds):
        clock = iter(seconds)
        monkeypatch.setattr(timing.time, "process_time", lambda: next(clock))

    return ticks


def test_a_rate_is_taken_in_every_round_but_the_first_and_a_ratio_in_all(clock):
    clock(0, 99, 0, 1, 0, 2, 0, 50)
    assert rates({"one": lambda: 10}, num_rounds=3) == {"one": [10, 5, 0.2]}
    assert ratio_of([6, 8, 20], [2, 4, 4]) == Spread(2, 3, 5)


def test_workloads_alternate_and_the_load_is_sampled_before_each_round_and_after_the_last(clock):
    clock(*range(12))
    events, loads = [], iter((0.0, 0.1, 0.05))
    with watching(LoadWatch(lambda: events.append("look") or next(loads))) as watch:
        found = timed_rounds({"a": lambda: events.append("a"), "b": lambda: events.append("b")}, num_rounds=2)
    assert events == ["a", "b", "look"] * 3
    assert found == {"a": [(None, 1), (None, 1)], "b": [(None, 1), (None, 1)]}
    assert watch.is_idle and "0.05 (0.00-0.10) cores" in watch.verdict()


@pytest.mark.parametrize(("loads", "is_idle"), [([0.0, 0.5], False), ([float("nan")], None), ([], None)])
def test_one_busy_look_makes_a_busy_machine_and_no_look_none(loads, is_idle):
    watch = LoadWatch(iter(loads).__next__)
    for _ in loads:
        watch.look()
    assert watch.is_idle is is_idle
    assert ("Not for publication" in watch.verdict()) == (is_idle is False)


def test_without_a_watch_nobody_looks_and_the_one_inside_a_block_is_put_off_after_it():
    outer = LoadWatch(lambda: 1.0)
    with watching(outer), watching(LoadWatch(lambda: 2.0)) as inner:
        timing.look()
    timing.look()
    assert (outer.loads, inner.loads) == ([], [2.0])


@pytest.mark.skipif(not Path("/proc/stat").exists(), reason="the system does not tell its load")
def test_the_load_of_another_process_is_seen_and_our_own_is_not():
    code = "import time\nend = time.time() + 20\nwhile time.time() < end: pass"
    with subprocess.Popen([sys.executable, "-c", code]) as other:
        try:
            assert max(timing.other_load() for _ in range(5)) > 0.2
        finally:
            other.kill()


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
