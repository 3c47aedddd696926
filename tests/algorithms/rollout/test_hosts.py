"""Environments and sandboxes on Ray's hosts give what this process gives, whatever becomes of the hosts."""

from __future__ import annotations

import os
import signal
import threading

import pytest
from clusters import NODE, assert_same, experiment, processes, stepped, two_nodes
from faulty_worlds import AGENTS, Texts

from collm._errors import UserError
from collm.agents.core import Completion, Policy
from collm.algorithms.rollout.collector import Plan, RolloutCollector
from collm.envs import EnvironmentFault, HostVector, SyncVector, make

ray = pytest.importorskip("ray", reason="needs collm[ray], which the extra dev brings")

pytestmark = [  # Ray leaves files and sockets of its own to the garbage collector
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
HUMAN_EVAL = "collm/HumanEval-v1"


@pytest.fixture(scope="module")
def cluster():
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("RAY_worker_niceness", "0")
        ray.init(address="local", include_dashboard=False, log_to_driver=False, logging_level="error", **NODE)
        yield
        ray.shutdown()


def test_what_cannot_be_is_one_line_before_anything_begins():
    with pytest.raises(ValueError, match=r"env_hosts='ray'.*num_workers=2"):
        experiment(env_hosts="ray", num_workers=2).check()
    with pytest.raises(ValueError, match=r"env_hosts='ray'.*collectors='ray'"):
        experiment(env_hosts="ray", collectors="ray").check()
    with pytest.raises(UserError, match=r'"ray://HOST:PORT".*there'):
        experiment(env_hosts="there").check()
    with pytest.raises(ValueError, match=r"num_envs.*got 0"):
        HostVector(HUMAN_EVAL, 0)
    experiment(env_hosts="ray", timeout_s=5.0).check()


def programs(num_envs):
    """Replies by copy: reference programs for half of the copies, and programs that do not end or do not parse."""
    env = make(HUMAN_EVAL, max_turns=2)
    found = {}
    for index in range(num_envs):
        env.reset(seed=index)
        found[index] = {agent: env.reference_reply(agent) for agent in env.possible_agents}
        if index % 2:
            found[index] = dict.fromkeys(found[index], "```python\nwhile True: pass\n```" if index % 4 == 1 else "?!")
    env.close()
    return found


def judged(vector, replies, before_second=lambda: None):
    """What each copy's two turns gave: observations, rewards, ends, and what the tests said."""
    for index in replies:
        vector.send_reset(index, seed=index)
    told = {index: [] for index in replies}
    running = set(replies)
    while running:
        going = {}
        for index, result in vector.ready().items():
            told[index].append((result, vector.state(index)))
            if any(result[2].values()) or any(result[3].values()):
                running.remove(index)
            else:
                going[index] = replies[index]
        if any(len(told[index]) == 2 for index in going):
            before_second()
        vector.send(going)
    assert vector.lost() == {}
    return told


@pytest.mark.slow
def test_programs_run_in_sandboxes_on_hosts_and_a_lost_host_changes_no_test_result(cluster):
    """Hosts are killed while their sandboxes are at work; all of them at once, too."""
    replies = programs(4)
    with SyncVector(HUMAN_EVAL, 4, max_turns=2) as here:
        expected = judged(here, replies)
    assert sum(row[0][1]["main_0"] > 0 for rows in expected.values() for row in rows[1:]) >= 2  # references pass
    losses = [1, 2]

    def lose():
        if losses:
            for process in processes("ray::Host")[: losses.pop(0)]:
                os.kill(process, signal.SIGKILL)

    with HostVector(HUMAN_EVAL, 4, max_turns=2, num_hosts=2) as vector:
        before = processes("ray::Host")
        assert len(before) == 2
        for _ in range(2):
            assert judged(vector, replies, lose) == expected
        assert not losses and not set(before) & set(processes("ray::Host"))


@pytest.mark.slow
def test_a_training_with_hosts_is_that_of_one_process_though_a_host_is_killed(cluster):
    expected = stepped(experiment().make_trainer(), 3)
    trainer = experiment(env_hosts="ray").make_trainer()
    found = [trainer.step()]
    os.kill(processes("ray::Host")[0], signal.SIGKILL)
    found += stepped(trainer, 2)
    assert_same([episodes for episodes, _ in found], [episodes for episodes, _ in expected])
    for (_, metrics), (_, others) in zip(found, expected, strict=True):
        assert metrics["return"] == others["return"] and "skipped_episodes" not in metrics


class Silent(Policy):
    def act(self, requests, *, greedy=False):
        return [Completion("hello") for _ in requests]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "reason"), [("dies", r"died \(The actor died"), ("hangs", "gave no answer within")])
def test_an_environment_that_always_takes_its_host_with_it_ends_in_one_line(cluster, kind, reason):
    with HostVector(Texts, 1, num_hosts=1, timeout_s=2.0, kind=kind) as vector:
        made = RolloutCollector(vector, dict.fromkeys(AGENTS, Silent()))
        with pytest.raises(EnvironmentFault, match=rf"seed \d, turn 2: .*{reason}.* and so did 2 others") as caught:
            made.collect([Plan(0), Plan(1)])
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_faults_of_environments_on_hosts_are_those_of_environments_here(cluster):
    messages = []
    for vector in (SyncVector(Texts, 1, kind="step raises"), HostVector(Texts, 1, kind="step raises")):
        with pytest.raises(EnvironmentFault) as caught:
            RolloutCollector(vector, dict.fromkeys(AGENTS, Silent())).collect([Plan(7)])
        messages.append(str(caught.value))
        vector.close()
    assert messages[0] == messages[1]
    with pytest.raises(EnvironmentFault, match="could not be built: TypeError"):
        HostVector(Texts, 1, nonsense=1)
    with pytest.raises(TypeError, match="cannot be sent to another machine"):
        HostVector(Texts, 1, kind=threading.Lock())


@pytest.mark.slow
def test_more_hosts_than_cores_share_a_cluster_of_their_own_which_the_last_vector_leaves(monkeypatch):
    """As a training's copies and its evaluation's do; those that are made first are closed first."""
    monkeypatch.setenv("RAY_worker_niceness", "0")
    ray.shutdown()
    vectors = [HostVector("collm/MiniBuild-v0", 1, num_hosts=1) for _ in range(1 + (os.cpu_count() or 1))]
    with SyncVector("collm/MiniBuild-v0", 1) as here:
        for vector in vectors:
            assert vector.reset(0, seed=3) == here.reset(0, seed=3)
            vector.close()
            vector.close()
            assert ray.is_initialized() is (vector is not vectors[-1])


@pytest.mark.slow
def test_a_node_of_hosts_that_is_taken_away_changes_no_episode(monkeypatch):
    """Two nodes on this machine with a host each; the cluster has room for both hosts on what is left."""
    monkeypatch.setenv("RAY_worker_niceness", "0")
    ray.shutdown()
    nodes, second = two_nodes()
    expected = stepped(experiment().make_trainer())
    try:
        trainer = experiment(env_hosts=f"ray://{nodes.address}").make_trainer()
        found = [trainer.step()]
        before = set(processes("ray::Host"))
        nodes.remove_node(second)
        assert before - set(processes("ray::Host"))  # a host was lost
        found += stepped(trainer, 1)
        assert_same([episodes for episodes, _ in found], [episodes for episodes, _ in expected])
    finally:
        ray.shutdown()
        nodes.shutdown()
