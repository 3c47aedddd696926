"""Copies stepped together play the same episodes as one alone, in this process and in others."""

from __future__ import annotations

import os
import signal
import time

import numpy as np
import pytest

from collm.envs import EnvSpec, OpenText, Outcome, TextParallelEnv, Transcript
from collm.envs.vectors.processes import ProcessVector, WorkerError
from collm.envs.vectors.vector import SyncVector


class Counting(TextParallelEnv):
    """Two agents; what they read tells the turn and a random number, and certain words do harm."""

    metadata = TextParallelEnv.metadata | {"name": "counting_v0"}

    def __init__(self, max_turns: int = 3, **kwargs):
        super().__init__(["player_0", "player_1"], max_turns, **kwargs)

    def deal(self, task):
        return dict.fromkeys(self.agents, f"{task} {self.rng.random()}")

    def play(self, replies):
        if "raise" in replies.values():
            raise KeyError("a fault of the author")
        if "die" in replies.values():
            os.kill(os.getpid(), signal.SIGKILL)
        if "sleep" in replies.values():
            time.sleep(60)
        for path in (reply.removeprefix("wait for ") for reply in replies.values() if reply.startswith("wait for ")):
            while not os.path.exists(path):
                time.sleep(0.005)
        gone = frozenset(agent for agent, reply in replies.items() if reply == "leave")
        return Outcome(self.rng.random(), dict.fromkeys(replies, f"turn {self.turn}"), finished=gone)


def _never_built():
    raise OSError("no room")


SPEC = EnvSpec("test/Counting-v0", Counting)


@pytest.fixture(scope="module", params=["sync", "processes"])
def vector(request):
    with SyncVector(SPEC, 3) if request.param == "sync" else ProcessVector(SPEC, 3, num_workers=2) as made:
        yield made


def test_copies_play_the_episodes_of_one_alone(vector):
    alone = Counting()
    for index in (2, 0):
        expected = [alone.reset(seed=index), alone.state()]
        assert [vector.reset(index, seed=index), vector.state(index)] == expected
    for turn in range(3):
        results = vector.step({index: dict.fromkeys(vector.agents(index), f"reply {turn}") for index in (2, 0)})
        assert list(results) == [2, 0]
    alone.reset(seed=0)
    for turn in range(3):
        expected = alone.step(dict.fromkeys(alone.possible_agents, f"reply {turn}"))
    assert results[0] == expected
    assert vector.state(0) == alone.state()
    assert vector.agents(0) == []


def test_what_is_begun_comes_back_as_what_is_waited_for(vector):
    expected = [vector.reset(index, seed=index) for index in (0, 2)]
    for index in (0, 2):
        vector.send_reset(index, seed=index)
    arrived = {}
    while len(arrived) < 2:
        arrived |= vector.ready()
    assert [arrived[index] for index in (0, 2)] == [(seen, {}, {}, {}, infos) for seen, infos in expected]
    actions = {index: dict.fromkeys(vector.agents(index), "go on") for index in (0, 2)}
    vector.send(actions)
    arrived = {}
    while len(arrived) < 2:
        arrived |= vector.ready()
    for index in (0, 2):
        vector.reset(index, seed=index)
    assert arrived == vector.step(actions)
    assert vector.ready() == {}


def test_transcripts_keep_their_messages_between_processes(vector):
    observations, _ = vector.reset(1, seed=0, options={"task": "a task"})
    assert isinstance(observations["player_0"], Transcript)
    assert observations["player_0"].messages[0].content.startswith("a task 0.")


def test_who_leaves_is_no_longer_live(vector):
    vector.reset(1, seed=0)
    vector.step({1: {"player_0": "leave", "player_1": "stay"}})
    assert vector.agents(1) == ["player_1"]


def test_what_a_vector_says_of_its_environment(vector):
    assert vector.num_envs == 3
    assert vector.possible_agents == ["player_0", "player_1"]
    assert vector.action_space("player_0") == OpenText(16_384)
    assert vector.observation_space("player_1") == vector.state_space == OpenText(1_048_576)
    assert vector.spec.id == "test/Counting-v0"


def test_arguments_reach_the_environment():
    with SyncVector(Counting, 1, max_turns=1) as vector:
        vector.reset(0, seed=0)
        (result,) = vector.step({0: dict.fromkeys(vector.agents(0), "")}).values()
        assert all(result[2].values())


@pytest.mark.parametrize("kind", [SyncVector, ProcessVector])
def test_a_vector_of_nothing_is_refused(kind):
    with pytest.raises(ValueError, match="num_envs must be at least 1, got 0"):
        kind(SPEC, 0)
    with pytest.raises(LookupError, match="no environment is called"):
        kind("test/Nothing-v0", 1)


def test_environments_of_numbers_run_too():
    simple_spread_v3 = pytest.importorskip("mpe2.simple_spread_v3")
    with SyncVector(simple_spread_v3.parallel_env, 2, max_cycles=2) as vector:
        observations, _ = vector.reset(0, seed=0)
        assert isinstance(vector.state(0), np.ndarray)
        vector.step({0: dict.fromkeys(observations, 0)})


def test_an_error_in_a_worker_names_the_copy_and_shows_the_traceback():
    vector = ProcessVector(SPEC, 2, num_workers=1)
    vector.reset(0, seed=0)
    vector.reset(1, seed=0)
    with pytest.raises(WorkerError, match=r"(?s)index 1 .*in play.*KeyError: 'a fault of the author'"):
        vector.step({0: dict.fromkeys(vector.agents(0), ""), 1: dict.fromkeys(vector.agents(1), "raise")})
    with pytest.raises(RuntimeError, match="closed"):
        vector.reset(0)


def test_a_quick_copy_does_not_wait_for_a_slow_one(tmp_path):
    with ProcessVector(SPEC, 3, num_workers=2) as vector:
        for index in range(3):
            vector.reset(index, seed=0)
        vector.send(
            {0: {"player_0": f"wait for {tmp_path / 'go'}", "player_1": ""}, 1: dict.fromkeys(vector.agents(1), "")}
        )
        assert list(vector.ready()) == [1]
        assert vector.ready(timeout_s=0) == {}
        vector.send({2: dict.fromkeys(vector.agents(2), "")})  # behind the slow one, in the same worker
        (tmp_path / "go").touch()
        assert list(vector.ready() | vector.ready()) == [0, 2]


def test_a_reset_forgets_what_was_begun_before_it():
    with ProcessVector(SPEC, 1) as vector:
        first, _ = vector.reset(0, seed=5)
        vector.send({0: dict.fromkeys(vector.agents(0), "")})
        vector.send_reset(0, seed=5)
        assert vector.ready()[0][0] == first
        assert vector.ready() == {}


def test_messages_larger_than_a_pipe_pass_in_both_directions():
    with ProcessVector(SPEC, 4, num_workers=1) as vector:
        for index in range(4):
            vector.reset(index, seed=index)
        for _ in range(2):
            results = vector.step({index: dict.fromkeys(vector.agents(index), "x" * 400_000) for index in range(4)})
        assert len(results) == 4
        assert vector.state(3).count("x") > 60_000  # of each reply, an environment keeps 16,384 letters


def test_a_worker_that_dies_is_named():
    vector = ProcessVector(SPEC, 2, num_workers=1)
    vector.reset(1, seed=0)
    with pytest.raises(WorkerError, match=r"environments \[0, 1\] died with exit code -9"):
        vector.step({1: dict.fromkeys(vector.agents(1), "die")})


def test_a_worker_that_does_not_answer_is_given_up():
    vector = ProcessVector(SPEC, 1, timeout_s=10)
    vector.reset(0, seed=0)
    vector._timeout_s = 0.2
    with pytest.raises(WorkerError, match=r"no answer within 0\.2 s"):
        vector.step({0: dict.fromkeys(vector.agents(0), "sleep")})
    assert not any(process.is_alive() for process in vector._processes)


def test_an_environment_that_cannot_be_built_says_so():
    with pytest.raises(WorkerError, match="no room"):
        ProcessVector(_never_built, 1)


def test_what_cannot_be_sent_to_a_process_is_refused():
    with pytest.raises(TypeError, match="top of a module"):
        ProcessVector(lambda: Counting(), 1)


def test_closing_leaves_no_process_behind():
    vector = ProcessVector(SPEC, 2, num_workers=2)
    processes = list(vector._processes)
    vector.close()
    vector.close()
    assert [process.exitcode for process in processes] == [0, 0]
