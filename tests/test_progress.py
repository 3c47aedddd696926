"""Phases: counts, rates, expected ends, and observers that show or stop work."""

from __future__ import annotations

import threading

import pytest

from collm._progress import advance, expect, observing, phase


@pytest.fixture
def clock(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    return now


def test_the_expected_end_of_nested_phases_by_hand(clock):
    texts = []
    with observing(lambda work: texts.append(str(work))), phase("update 3"), phase("play", "joint turns"):
        expect(4)
        advance(2, "0 of 2 episodes ended")  # two joint turns begin
        with phase("decode", "tokens"):
            expect(1000)
            with phase("read prompts", "batches", is_apart=True):
                clock[0] += 50
            clock[0] += 10
            advance(250, "5 replies unfinished")
    # 250 tokens in 10 s: the other 750 take 30 s. Two turns take 60 s + 30 s, and so do the next two.
    assert texts[-1] == (
        "update 3 · play 2 of 4 joint turns, 0 of 2 episodes ended, 0:02:00 left"
        " · decode 250 of 1,000 tokens, 5 replies unfinished, 25 per s, 0:00:30 left"
    )


def test_the_parts_of_a_phase_have_own_counts_and_durations(clock):
    seen = []
    with observing(lambda work: seen.append((work.name, work.done, work.total))), phase("critics", "passes") as work:
        clock[0] += 3
        advance()
        work.begin("policies", "passes")
        clock[0] += 4
        work.begin("")
    assert seen == [("critics", 0, 0), ("critics", 1, 0), ("policies", 0, 0), ("", 0, 0)]
    assert work.seconds == {"critics": 3.0, "policies": 4.0}


def test_an_observer_can_stop_work_and_sees_only_work_of_its_block():
    class Stop(Exception):
        pass

    def stop(work):
        raise Stop

    advance()  # without an observer
    with pytest.raises(Stop), observing(stop):
        advance()
    advance()
    seen = []
    with observing(seen.append):
        thread = threading.Thread(target=advance)  # such as rollouts in advance, which a stop must not interrupt
        thread.start()
        thread.join()
    assert seen == []
