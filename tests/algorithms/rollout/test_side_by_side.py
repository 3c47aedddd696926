"""Concurrent models give the results, errors and interrupts of sequential ones."""

import os
import signal
import threading
import time

import pytest
import torch
from small_trainers import text_trainer, timeless, weights

from collm.agents.core import Workplace
from collm.algorithms.rollout import side_by_side
from collm.algorithms.rollout.side_by_side import ModelTask, SideBySide

CPU = torch.device("cpu")
ONE, TWO = Workplace(1, CPU), Workplace(2, CPU)


def test_two_models_work_at_the_same_time_and_one_in_order():
    meeting, order = threading.Barrier(2, timeout=20), []
    tasks = [
        ModelTask(ONE, meeting.wait),
        ModelTask(ONE, lambda: order.append("second of one") or 1),
        ModelTask(TWO, meeting.wait),
        ModelTask(None, threading.get_ident),
    ]
    waited, one, other, thread = SideBySide(True).results(tasks)
    assert sorted([waited, other]) == [0, 1]
    assert (one, order) == (1, ["second of one"])
    assert thread == threading.get_ident()


def test_each_thread_computes_with_the_gpu_of_its_model(monkeypatch):
    chosen = []
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: chosen.append((threading.get_ident(), device)))
    meeting, both = threading.Barrier(2, timeout=20), SideBySide()
    places = [Workplace(number, torch.device("cuda", number)) for number in range(2)]

    def work():
        meeting.wait()
        return threading.get_ident()

    for first in (0, 1):  # the threads are reused, for other models
        found = both.results([ModelTask(place, work) for place in (places[first], places[1 - first])])
        assert sorted(chosen) == sorted(zip(found, (places[first].device, places[1 - first].device), strict=True))
        chosen.clear()
    SideBySide(True).results([ModelTask(ONE, meeting.wait), ModelTask(TWO, meeting.wait)])
    assert not chosen


def test_the_first_error_in_the_order_of_the_tasks_is_raised():
    done = []

    def fail(name, seconds):
        time.sleep(seconds)
        raise ValueError(name)

    tasks = [
        ModelTask(ONE, lambda: fail("first", 0.1)),
        ModelTask(ONE, lambda: done.append("after it")),
        ModelTask(TWO, lambda: fail("second", 0)),
        ModelTask(Workplace(3, CPU), lambda: done.append("beside it")),
    ]
    with pytest.raises(ValueError, match="first"):
        SideBySide(True).results(tasks)
    assert done == ["beside it"]


def test_ctrl_c_ends_the_work_of_all_threads():
    ended, begun = [], threading.Barrier(2, timeout=20)

    def endless():
        try:
            begun.wait()
            while True:
                time.sleep(0.005)
        except BaseException as error:
            ended.append(type(error))
            raise

    def press():
        begun.wait()
        os.kill(os.getpid(), signal.SIGINT)
        while True:
            time.sleep(0.005)

    pair = SideBySide(True)
    with pytest.raises(KeyboardInterrupt):
        pair.results([ModelTask(ONE, endless), ModelTask(TWO, press)])
    assert ended == [KeyboardInterrupt]
    assert pair.results([ModelTask(ONE, lambda: 1), ModelTask(TWO, lambda: 2)]) == [1, 2]


@pytest.mark.parametrize(
    ("devices", "cores", "threads", "expected"),
    [
        *((("cpu", "cpu"), 2, 1, True), (("cpu", "cpu"), 2, 2, True), (("cpu", "cpu"), 4, 4, True)),
        *((("cpu", "cpu"), 2, 4, False), (("cpu", "cpu"), 1, 1, False), (("cpu", "cpu", "cpu"), 2, 2, False)),
        *((("cuda:0", "cuda:0"), 8, 1, False), (("cuda:0", "cuda:1"), 1, 4, True)),
    ],
)
def test_threads_are_used_where_they_pay(monkeypatch, devices, cores, threads, expected):
    monkeypatch.setattr(side_by_side, "num_cores", lambda: cores)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    places = [Workplace(number, torch.device(device)) for number, device in enumerate(devices)]
    assert SideBySide().uses_threads(places) == expected
    assert SideBySide(True).uses_threads(places) and not SideBySide(False).uses_threads(places)
    assert not SideBySide(True).uses_threads(places[:1]) and not SideBySide().uses_threads(places[:1])
    if len(set(devices)) == 1:  # where each must have all threads, there must be cores for them
        fits = devices[0] == "cpu" and threads * len(devices) <= cores
        assert SideBySide(divides_threads=False).uses_threads(places) == fits


def test_models_on_one_cpu_divide_the_threads_of_torch_unless_each_must_have_all():
    before = torch.get_num_threads()
    tasks = [ModelTask(place, torch.get_num_threads) for place in (ONE, TWO)]
    try:
        torch.set_num_threads(4)
        assert SideBySide(True).results([*tasks, ModelTask(None, torch.get_num_threads)]) == [2, 2, 4]
        assert SideBySide(True, divides_threads=False).results(tasks) == [4, 4]
        later = []
        thread = threading.Thread(target=lambda: later.append(torch.get_num_threads()))
        thread.start()
        thread.join()
        assert (torch.get_num_threads(), later) == (4, [4])
    finally:
        torch.set_num_threads(before)


def trained(is_on, **settings):
    trainer = text_trainer(max_new_tokens=3, side_by_side=is_on, **settings)
    said, metrics, threads = [], [], set()
    for policy in trainer.collector.policies.values():
        evaluate = policy.evaluate
        policy.evaluate = lambda tracks, of=evaluate: threads.add(threading.get_ident()) or of(tracks)
    for learner in trainer.critics.values():
        gradient = learner._gradient
        learner._gradient = lambda *given, of=gradient: threads.add(threading.get_ident()) or of(*given)
    for _ in range(2):
        episodes, found = trainer.step()
        said += [turn.completion for each in episodes for track in each.tracks.values() for turn in track]
        metrics.append(timeless(found))
    return said, metrics, weights(trainer), threads


@pytest.mark.parametrize(
    "settings",
    [
        {"name": "magrpo", "num_generations": 2},
        {"name": "ippo", "use_separate_critic": False, "mini_batch_size": 3, "target_kl": 1e-6, "ppo_epochs": 3},
        {"name": "iac", "critic_replay": 2, "critic_steps": 2, "critic_batch_size": 3},
    ],
)
def test_training_is_bit_for_bit_the_same(settings):
    (one, one_metrics, one_weights, here), (other, other_metrics, other_weights, there) = (
        trained(is_on, **settings) for is_on in (False, True)
    )
    assert here == {threading.get_ident()} and threading.get_ident() not in there
    for left, right in zip(one, other, strict=True):
        assert left.action == right.action
        assert left.logprobs.tobytes() == right.logprobs.tobytes()
        assert left.value == right.value
    for left, right in zip(one_metrics, other_metrics, strict=True):
        assert left == pytest.approx(right, abs=0, rel=0, nan_ok=True)
    assert all(torch.equal(left, right) for left, right in zip(one_weights, other_weights, strict=True))
