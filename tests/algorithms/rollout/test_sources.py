"""Asynchronous rollouts: staleness does not depend on the speeds of worker and trainer."""

import threading
import time
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from collm._progress import observing
from collm.agents.core import Workplace
from collm.algorithms.config import TrainConfig
from collm.algorithms.rollout.requests import Rollout, RolloutRequest
from collm.algorithms.rollout.sources import AsyncSource, LocalWorker, RolloutWorker

PAUSES = st.sampled_from([0.0, 0.0, 0.0005, 0.002])


class Slow(RolloutWorker):
    """Worker with given delays, which stores its requests."""

    def __init__(self, pauses):
        self.pauses = pauses
        self.seen = []
        self.is_closed = threading.Event()

    def play(self, request, weights):
        time.sleep(self.pauses[request.update % len(self.pauses)])
        self.seen.append((request.update, request.version, weights["a"]))
        return Rollout([f"episode of update {request.update} by {weights['a']}"])

    def close(self):
        self.is_closed.set()


def source_of(worker, bound, num_updates):
    """A source whose weights are named after the number of updates done."""
    source = AsyncSource(
        worker,
        lambda update, version: RolloutRequest(update, version, (), update * 10),
        lambda: {"a": f"weights {source.collector.version}"},
        TrainConfig(max_staleness=bound, num_updates=num_updates),
        SimpleNamespace(),
    )
    return source


def through_checkpoint(source, version, bound, num_updates, pauses):
    state = source.state_dict(version)
    source.close()
    again = source_of(Slow(pauses), bound, num_updates)
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
    source = source_of(Slow(playing), bound, num_updates)
    for update in range(num_updates):
        rollout = source.next(update)
        # Staleness equals the bound, except in the first updates.
        assert rollout.episodes == [f"episode of update {update} by weights {max(0, update - bound)}"]
        assert source.collector.next_index == update * 10
        assert len(source._submitted) <= bound
        assert all(each.request.update < num_updates for each in source._submitted.values())
        time.sleep(learning[update % len(learning)])
        if update + 1 in resumed:
            source = through_checkpoint(source, update + 1, bound, num_updates, playing)
    source.close()


def test_learning_and_playing_go_on_at_the_same_time():
    learning, playing = threading.Event(), threading.Event()

    class Meeting(Slow):
        def play(self, request, weights):
            if request.update == 1:
                playing.set()
                assert learning.wait(10)
            return super().play(request, weights)

    source = source_of(Meeting([0.0]), 1, 2)
    source.next(0)
    assert playing.wait(10)
    learning.set()
    source.next(1)
    source.close()


def test_an_error_of_playing_is_raised_by_the_update_that_needs_it():
    class Failing(Slow):
        def play(self, request, weights):
            if request.update == 1:
                raise ValueError("no such task")
            return super().play(request, weights)

    source = source_of(Failing([0.0]), 1, 3)
    source.next(0)
    assert source.state_dict(1)["ahead"]["kept"] == {}
    with pytest.raises(ValueError, match="no such task"):
        source.next(1)
    source.close()


def test_a_stop_that_is_asked_for_while_an_update_waits_leaves_its_episodes_to_be_taken_again():
    class Asked(Exception):
        pass

    def stop(work):
        raise Asked

    may_end = threading.Event()

    class Waiting(Slow):
        def play(self, request, weights):
            assert may_end.wait(10)
            return super().play(request, weights)

    source = source_of(Waiting([0.0]), 0, 1)
    with observing(stop), pytest.raises(Asked):
        source.next(0)
    may_end.set()
    assert source.next(0).episodes == ["episode of update 0 by weights 0"]
    source.close()


def test_the_thread_that_plays_computes_with_the_gpu_of_its_models(monkeypatch):
    chosen = []
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: chosen.append((threading.get_ident(), device)))
    places = {"a": Workplace(1, torch.device("cuda:1")), "b": None, "c": Workplace(2, torch.device("cpu"))}
    policies = {name: SimpleNamespace(workplace=lambda place=place: place) for name, place in places.items()}
    played = SimpleNamespace(done=[], lost=set(), skipped=[])
    collector = SimpleNamespace(policies=policies, seconds={}, skipped=[], play=lambda plans, count: played)
    worker = LocalWorker(collector)
    monkeypatch.setattr(worker, "_version", 0)  # the weights are loaded
    source = source_of(worker, bound=0, num_updates=1)
    source.next(0)
    source.close()
    (thread, device), *others = chosen
    assert device == torch.device("cuda:1") and thread != threading.get_ident() and not others
