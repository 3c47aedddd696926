"""Vectorized environments play the same episodes as one environment, in this process and in worker processes."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from collm.envs import EnvSpec, OpenText, Outcome, TextParallelEnv, Transcript
from collm.envs.checks import play as check_play
from collm.envs.vectors.faults import EnvironmentFault
from collm.envs.vectors.processes import ProcessVector
from collm.envs.vectors.vector import SyncVector


class Counting(TextParallelEnv):
    """Two agents. Some replies raise an error, end the process, or block."""

    interests = "mixed"

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
        for reply in replies.values():
            what, _, path = reply.partition(" once ")
            if what == "die" and path and not os.path.exists(path):
                open(path, "w").close()
                os.kill(os.getpid(), signal.SIGKILL)
        for path in (reply.removeprefix("wait for ") for reply in replies.values() if reply.startswith("wait for ")):
            while not os.path.exists(path):
                time.sleep(0.005)
        gone = frozenset(agent for agent, reply in replies.items() if reply == "leave")
        return Outcome(self.rng.random(), dict.fromkeys(replies, f"turn {self.turn}"), finished=gone)


def _never_built():
    raise OSError("no room")


def _ends_its_process():
    os._exit(3)


def _is_running(process):
    """True if the process has not ended; zombies have ended."""
    try:
        with open(f"/proc/{process}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


SPEC = EnvSpec("test/Counting-v0", Counting)


def say(vector, replies):
    return {index: dict.fromkeys(vector.agents(index), reply) for index, reply in replies.items()}


def arrived(vector, count):
    found = {}
    while len(found) < count:
        found |= vector.ready()
    return found


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
        results = vector.step(say(vector, dict.fromkeys((2, 0), f"reply {turn}")))
        assert list(results) == [2, 0]
    alone.reset(seed=0)
    for turn in range(3):
        expected = alone.step(dict.fromkeys(alone.possible_agents, f"reply {turn}"))
    assert results[0] == expected
    assert vector.state(0) == alone.state()
    assert vector.agents(0) == []


def test_a_vector_tells_of_its_environment_and_send_and_ready_return_the_results_of_step(vector):
    assert vector.num_envs == 3
    assert vector.possible_agents == ["player_0", "player_1"]
    assert vector.action_space("player_0") == OpenText(16_384)
    assert vector.observation_space("player_1") == vector.state_space == OpenText(1_048_576)
    assert vector.spec.id == "test/Counting-v0"
    assert vector.turn_limit == 3
    assert vector.interests == "mixed"
    observations, _ = vector.reset(1, seed=0, options={"task": "a task"})
    assert isinstance(observations["player_0"], Transcript)
    assert observations["player_0"].messages[0].content.startswith("a task 0.")
    expected = [vector.reset(index, seed=index) for index in (0, 2)]
    for index in (0, 2):
        vector.send_reset(index, seed=index)
    found = arrived(vector, 2)
    assert [found[index] for index in (0, 2)] == [(seen, {}, {}, {}, infos) for seen, infos in expected]
    actions = say(vector, {0: "go on", 2: "go on"})
    vector.send(actions)
    found = arrived(vector, 2)
    for index in (0, 2):
        vector.reset(index, seed=index)
    assert found == vector.step(actions)
    assert vector.ready() == {}


@pytest.mark.parametrize("kind", [SyncVector, ProcessVector])
def test_a_vector_of_nothing_is_refused(kind):
    with pytest.raises(ValueError, match="num_envs=0"):
        kind(SPEC, 0)
    with pytest.raises(LookupError, match="no environment is called"):
        kind("test/Nothing-v0", 1)
    with kind(Counting, 1, max_turns=1) as vector:  # arguments reach the environment
        vector.reset(0, seed=0)
        assert all(vector.step(say(vector, {0: ""}))[0][2].values())


@pytest.mark.filterwarnings("ignore")  # of others' making
def test_environments_of_numbers_run_too_and_a_state_that_is_data_of_their_own_is_none():
    simple_spread_v3 = pytest.importorskip("mpe2.simple_spread_v3")
    with SyncVector(simple_spread_v3.parallel_env, 2, max_cycles=2) as vector:
        observations, _ = vector.reset(0, seed=0)
        assert isinstance(vector.state(0), np.ndarray)
        vector.step({0: dict.fromkeys(observations, 0)})
    rps_v2 = pytest.importorskip("pettingzoo.classic.rps_v2")
    with SyncVector(rps_v2.parallel_env, 1, num_actions=3) as vector:
        observations, _ = vector.reset(0, seed=0)
        assert vector.state(0) is None
        assert check_play.state_of(vector.envs[0]) is None
        vector.step({0: dict.fromkeys(observations, 0)})
        assert vector.state(0) is None


def test_an_error_in_a_worker_names_the_copy_and_shows_the_traceback_also_while_it_is_built():
    vector = ProcessVector(SPEC, 2, num_workers=1)
    vector.reset(0, seed=0)
    vector.reset(1, seed=7)
    with pytest.raises(EnvironmentFault, match=r"seed 7, turn 1: step raised KeyError: 'a fault of the aut") as caught:
        vector.step(say(vector, {0: "", 1: "raise"}))
    assert (caught.value.copy, caught.value.env) == (1, "test/Counting-v0")
    assert "in play" in caught.value.details
    with pytest.raises(RuntimeError, match="closed"):
        vector.reset(0)
    with pytest.raises(EnvironmentFault, match="could not be built: OSError: no room"):
        ProcessVector(_never_built, 1)
    with pytest.raises(EnvironmentFault, match="died with exit code 3 while it was built"):
        ProcessVector(_ends_its_process, 1)
    with pytest.raises(TypeError, match="module-level function"):
        ProcessVector(lambda: Counting(), 1)


def test_a_quick_copy_does_not_wait_for_a_slow_one(tmp_path):
    with ProcessVector(SPEC, 3, num_workers=2) as vector:
        for index in range(3):
            vector.reset(index, seed=0)
        vector.send(say(vector, {0: f"wait for {tmp_path / 'go'}", 1: ""}))
        assert list(vector.ready()) == [1]
        assert vector.ready(timeout_s=0) == {}
        vector.send(say(vector, {2: ""}))  # behind the slow one, in the same worker
        (tmp_path / "go").touch()
        assert list(vector.ready() | vector.ready()) == [0, 2]


def test_a_reset_forgets_what_was_begun_before_it_and_closing_leaves_no_process_behind():
    vector = ProcessVector(SPEC, 2, num_workers=2)
    first, _ = vector.reset(0, seed=5)
    vector.send(say(vector, {0: ""}))
    vector.send_reset(0, seed=5)
    assert vector.ready()[0][0] == first
    assert vector.ready() == {}
    processes = list(vector._processes.values())
    vector.close()
    vector.close()
    assert [process.exitcode for process in processes] == [0, 0]


def test_messages_larger_than_a_pipe_pass_in_both_directions():
    with ProcessVector(SPEC, 4, num_workers=1) as vector:
        for index in range(4):
            vector.reset(index, seed=index)
        for _ in range(2):
            results = vector.step(say(vector, dict.fromkeys(range(4), "x" * 400_000)))
        assert len(results) == 4
        assert vector.state(3).count("x") > 60_000  # of each reply, an environment keeps 16,384 letters


def played(vector, index, seed, replies):
    found = [vector.reset(index, seed=seed)]
    for reply in replies:
        found.append((vector.step(say(vector, {index: reply}))[index], vector.state(index)))
    return found


def test_a_worker_that_dies_is_replaced_and_its_episodes_go_on(tmp_path):
    once = f"die once {tmp_path / 'died'}"
    with SyncVector(SPEC, 1) as alone:
        (tmp_path / "died").touch()
        expected = [played(alone, 0, seed, ["go on", once, "end"]) for seed in (3, 4)]
        (tmp_path / "died").unlink()
    with ProcessVector(SPEC, 2, num_workers=1) as vector:
        starts = [vector.reset(index, seed=3 + index) for index in (0, 1)]
        found = [[start] for start in starts]
        for reply in ("go on", once, "end"):
            results = vector.step(say(vector, {1: reply, 0: reply}))
            for index, result in results.items():
                found[index].append((result, vector.state(index)))
        assert found == expected
        assert vector.lost() == {}


@pytest.mark.parametrize(("reply", "reason"), [("die", "died with exit code -9"), ("sleep", "no answer within")])
def test_an_episode_that_fails_twice_is_given_up_and_the_others_go_on(reply, reason):
    with ProcessVector(SPEC, 2, num_workers=1, timeout_s=0.5) as vector:
        for index in (0, 1):
            vector.reset(index, seed=index)
        vector.send(say(vector, {1: reply, 0: "go on"}))
        found, lost = {}, {}
        while not (found and lost):
            found |= vector.ready()
            lost |= vector.lost()
        assert list(found) == [0]
        (fault,) = lost.values()
        assert (fault.copy, fault.seed, fault.turn) == (1, 1, 1)
        assert reason in str(fault)
        assert len(played(vector, 1, 2, ["go on"])) == 2  # the copy serves the next episode
        with pytest.raises(EnvironmentFault, match=rf"test/Counting-v0, seed 2, turn 2: .*{reason}"):
            vector.step(say(vector, {1: reply}))  # who waits for the episode gets its fault
    assert not any(process.is_alive() for process in vector._processes.values())


def test_a_worker_in_an_endless_loop_does_not_outlive_a_killed_main_process(tmp_path):
    script = tmp_path / "main.py"
    script.write_text(
        "from collm.envs import ProcessVector\nfrom test_vector import SPEC\n"
        "if __name__ == '__main__':\n"
        "    vector = ProcessVector(SPEC, 1)\n    vector.reset(0, seed=0)\n"
        "    vector.send({0: dict.fromkeys(vector.agents(0), 'sleep')})\n"
        "    print(vector._processes[0].pid, flush=True)\n    vector.ready()\n"
    )
    environment = os.environ | {"PYTHONPATH": os.path.dirname(__file__)}
    main = subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, env=environment, text=True)
    worker = int(main.stdout.readline())
    main.kill()
    main.wait()  # for the process alone: a worker that lives on keeps its output open
    limit = time.monotonic() + 20
    while time.monotonic() < limit and _is_running(worker):
        time.sleep(0.05)
    assert not _is_running(worker)
    main.stdout.close()
