"""Lost worker processes do not change episodes; an episode that cannot be replayed is reported with the reason."""

import pickle
from collections import deque
from functools import partial

import numpy as np
import pytest
from heard import Heard
from hypothesis import given, settings
from hypothesis import strategies as st

from collm.envs import Outcome, SyncVector
from collm.envs.vectors import processes
from collm.envs.vectors.copies import Copies, built, digest_of
from collm.envs.vectors.faults import EnvironmentFault
from collm.envs.vectors.processes import LostWorkerError, ProcessVector

NUM_TURNS = 4


class Diary(Heard):
    """Two agents whose feedback contains all replies and a random number."""

    def __init__(self, drifts=False):
        super().__init__(max_turns=NUM_TURNS)
        self.drifts = drifts

    def play(self, replies):
        if self.drifts and self.turn == 1:
            Diary.clock += 1
        gone = frozenset(agent for agent, reply in replies.items() if reply == "leave")
        told = f"{sorted(replies.items())} {self.rng.random()} {Diary.clock if self.drifts and self.turn else ''}"
        return Outcome(self.rng.random(), dict.fromkeys(replies, told), finished=gone)

    clock = 0


class NearbyVector(ProcessVector):
    """Simulated workers in this process. `losses`: workers that die, by the number of earlier replies."""

    max_lost_in_row = 1_000

    def __init__(self, build, num_envs, num_workers, losses=None, max_failures=1_000):
        self.max_failures = max_failures
        self.build, self.losses = build, dict(losses or {})
        self.num_answers = self.num_started = 0
        self.dead, self.copies, self.waiting = set(), {}, {}
        super().__init__(build, num_envs, num_workers=num_workers)

    def _start(self, number):
        self.num_started += 1
        self.waiting[number] = deque([None])

    def _kill(self, number):
        self.dead.discard(number)

    def _deliver(self, number, payload):
        if number not in self.dead:
            self.waiting[number].append(payload)

    def _answering(self, numbers, timeout_s):
        return [number for number in numbers if number in self.dead or self.waiting[number]][:1]

    def _answer_of(self, number):
        losses = self.losses.pop(self.num_answers, set()) & set(range(self.num_workers))
        self.dead |= {each for each in losses if not self._is_starting[each]}
        if number in self.dead:
            raise LostWorkerError("died (the roof came down)")
        if not self.waiting[number]:
            return None
        self.num_answers += 1
        payload = self.waiting[number].popleft()
        if payload is None:
            self.copies[number], answer = built(lambda: Copies(self.build, self._indices(number), True))
            return answer
        return self.copies[number].reply(payload)


def played(vector, num_episodes=6):
    """Results by episode. Each copy starts the next episode when its last one has ended."""
    seeds = iter(range(num_episodes))
    told, running = {}, {}

    def begin(index):
        seed = next(seeds, None)
        if seed is not None:
            running[index] = seed
            vector.send_reset(index, seed, {"task": str(seed)})

    for index in range(vector.num_envs):
        begin(index)
    while running:
        arrived = vector.ready()
        for index, (observations, *rest) in arrived.items():
            seed = running[index]
            told.setdefault(seed, []).append((observations, *rest[:3], vector.state(index)))
            if vector.agents(index):
                words = {agent: f"{seed} {len(told[seed])}" for agent in vector.agents(index)}
                if seed == 2 and len(told[seed]) == 2:
                    words["a_0"] = "leave"
                vector.send({index: words})
            else:
                del running[index]
                begin(index)
    assert vector.lost() == {}
    return told


@pytest.fixture(scope="module")
def expected():
    with SyncVector(Diary, 3) as vector:
        return played(vector)


LOSSES = st.dictionaries(st.integers(3, 40), st.sets(st.integers(0, 2), min_size=1), max_size=6)


@settings(max_examples=60, deadline=None)
@given(losses=LOSSES, num_envs=st.integers(1, 5))
def test_whatever_workers_are_lost_episodes_are_those_of_one_process(expected, losses, num_envs):
    assert played(NearbyVector(Diary, num_envs, 3, losses)) == expected
    assert all(len(rows) == NUM_TURNS + 1 for seed, rows in expected.items())
    vector = NearbyVector(Diary, 3, 3, {10: {0, 1, 2}})  # all at once
    assert played(vector) == expected and vector.num_started == 6


def said(words, index=0):
    return {index: dict.fromkeys(("a_0", "b_0"), words)}


def test_an_episode_that_is_another_one_when_it_is_played_again_is_given_up():
    vector = NearbyVector(partial(Diary, drifts=True), 2, 1)
    for index in (0, 1):
        vector.reset(index, seed=index)
    for turn in (1, 2):
        vector.step(said(f"turn {turn}"))
    vector.dead.add(0)
    assert list(vector.step(said("go on", 1))) == [1]
    vector.send(said("nobody reads this"))
    assert vector.ready() == {} and vector.agents(0) == []
    (fault,) = vector.lost().values()
    assert (fault.copy, fault.seed) == (0, 0)
    assert "turn 2 returned other" in str(fault)
    assert vector.reset(0, seed=0)[0] == SyncVector(Diary, 1).reset(0, seed=0)[0]  # the copy serves another episode
    vector = NearbyVector(partial(Diary, drifts=True), 1, 1)
    vector.reset(0, seed=0)
    vector.step(said("one"))
    vector.step(said("two"))
    vector.dead.add(0)
    with pytest.raises(EnvironmentFault, match=r"seed 0, turn 3: its worker process .*not deterministic"):
        vector.step(said("three"))
    with pytest.raises(RuntimeError, match="closed"):
        vector.reset(0)
    vector = NearbyVector(Diary, 1, 1, {2: {0}, 3: {0}}, max_failures=2)  # each dies at the turn, not before
    vector.reset(0, seed=7)
    vector.send(said("fall over"))
    assert vector.ready() == {}
    lost = vector.lost()
    assert "died (the roof came down)" in str(lost[0])
    assert "\n" not in str(lost[0]) and vector.num_started == 3


def test_each_replacement_is_logged_and_many_in_a_row_are_an_error(caplog, monkeypatch):
    monkeypatch.setattr(NearbyVector, "max_lost_in_row", 3)
    vector = NearbyVector(Diary, 2, 1, {4: {0}, 5: {0}, 6: {0}})
    for index in (0, 1):
        vector.reset(index, seed=index)
    vector.step(said("go on"))
    vector.send(said("fall over", 1))
    with pytest.raises(EnvironmentFault, match=r"turn 1: 3 worker processes in a row.*the roof came down"):
        vector.ready()
    told = "heard_v0: worker process 0 died (the roof came down); it is replaced"
    assert [each.message for each in caplog.records] == [told] * 2


def test_a_worker_that_is_lost_while_it_is_built_or_never_starts_is_a_fault(monkeypatch):
    class Falling(NearbyVector):
        def _start(self, number):
            super()._start(number)
            self.dead.add(number)

    with pytest.raises(EnvironmentFault, match=r"its worker process died .* while it was built"):
        Falling(Diary, 1, 1)

    class Crowded(NearbyVector):
        def _answering(self, numbers, timeout_s):
            return []

    monkeypatch.setattr(processes, "START_S", 0.01)
    with pytest.raises(EnvironmentFault, match=r"was not built within 0.01 s") as caught:
        Crowded(Diary, 1, 1)
    assert "\n" not in str(caught.value)


def result(observation, reward=0.0):
    return {"a_0": observation}, {"a_0": reward}, {"a_0": False}, {"a_0": False}, {}


def test_equal_results_alone_have_equal_digests():
    for one, other in [
        ("text", "".join(["te", "xt"])),
        ({"x": 1, "y": (2, 3)}, {"y": (2, 3), "x": 1}),
        (np.array([1.0, np.nan], np.float32), np.array([1.0, np.nan], np.float32)),
        (frozenset({1}), pickle.loads(pickle.dumps(frozenset({1})))),
        (np.arange(6).reshape(2, 3)[:, ::2], np.array([[0, 2], [3, 5]])),
    ]:
        assert digest_of(result(one)) == digest_of(result(other)) != digest_of(result(other, 1.0))
    shown = ["ab", "a", ("a", "b"), ("ab",), {"a": "b"}, 0, None]
    shown += [np.zeros(2), np.zeros(2, np.float32), np.zeros((2, 1))]
    assert len({digest_of(result(each)) for each in shown}) == len(shown)
    ended = ({"a_0": "ab"}, {"a_0": 0.0}, {"a_0": True}, {"a_0": False}, {})
    assert digest_of(ended) != digest_of(result("ab"))
