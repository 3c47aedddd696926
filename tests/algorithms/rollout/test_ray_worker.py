"""Ray actors play the episodes of one process, also if actors are lost. Skipped if Ray is not installed."""

from __future__ import annotations

import os
import signal
import threading
from dataclasses import replace

import pytest
from clusters import NODE, assert_same, experiment, stepped, two_nodes
from faulty_worlds import Texts

from collm._cluster import Cluster, leave
from collm._errors import UserError
from collm.algorithms.learning.learners import policy_weights
from collm.algorithms.rollout.ray_worker import LostCollectorsError, RayWorker
from collm.algorithms.runs.assembly.checks import cluster_of
from collm.algorithms.runs.assembly.experiment import Blueprint
from collm.envs import Outcome, TextParallelEnv, register
from collm.envs.vectors.faults import EnvironmentFault

ray = pytest.importorskip("ray", reason="needs collm[ray], which the extra dev brings")

pytestmark = [  # Ray does not close its files and sockets
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module")
def cluster():
    """One small node for all tests except those that lose nodes. The address in the environment does not answer."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("RAY_ADDRESS", "127.0.0.1:1")
        patched.setenv("RAY_worker_niceness", "0")
        ray.init(address="local", include_dashboard=False, log_to_driver=False, logging_level="error", **NODE)
        yield
        ray.shutdown()


@pytest.mark.parametrize(
    ("algorithm", "env"),
    [("maac", "collm/MiniWriting-v2"), pytest.param("c3", "collm/MiniBuild-v0", marks=pytest.mark.slow)],
)
def test_two_actors_play_token_by_token_what_one_process_plays(cluster, algorithm, env):
    expected = stepped(experiment(env, algorithm).make_trainer())
    found = stepped(experiment(env, algorithm, collectors="ray").make_trainer())
    assert_same([episodes for episodes, _ in found], [episodes for episodes, _ in expected])
    assert found[1][1]["seconds/decoding"] > 0


def test_a_cluster_that_cannot_be_joined_is_one_line_before_anything_begins(monkeypatch):
    for address in ("here", "ray://", "ray://host", "ray://host:x"):
        with pytest.raises(UserError, match='"ray://HOST:PORT"'):
            Cluster(address=address).check()
    with pytest.raises(UserError, match="there is no folder"):
        Cluster(files="/nowhere").check()
    for name in ("cpus", "max_restarts"):
        with pytest.raises(UserError, match=name):
            experiment(collectors="ray", collector_options={name: 1}).check()
    with pytest.raises(ValueError, match=r"turns_per_update=2 .* collectors='ray'"):
        experiment(collectors="ray", turns_per_update=2).check()


class Orders:
    def __init__(self, **settings):
        self.experiment = experiment(collectors="ray", **settings)
        self.local = replace(self.experiment, config=replace(self.experiment.config, collectors=None)).make_trainer()

    def order(self, update):
        return self.local.source._request(update, update)

    def weights(self):
        return policy_weights(self.local.unique_learners)

    def actors(self):
        return RayWorker(Blueprint.of(self.experiment, 4), cluster_of(self.experiment.config))

    def played_here(self, update):
        self.local.collector.next_index = self.order(update).first
        self.local.collector.version = update
        return self.local.collector.collect(self.order(update).plans)


def places(actors):
    return [int(each.place.rpartition(" ")[2]) for each in actors._actors if each.is_ready]


def kill_all(processes):
    for process in processes:
        os.kill(process, signal.SIGKILL)


@pytest.mark.slow
def test_three_of_four_actors_and_then_all_lost_at_once_cost_no_episode_and_change_none(cluster):
    orders = Orders(rollout_buffer_size=64, num_collectors=4, collector_options={"num_cpus": 0.25})
    actors = orders.actors()
    weights = orders.weights()
    for count in (3, 4):
        while len(places(actors)) < 4:
            actors.play(orders.order(0), weights)
        killed = places(actors)[:count]
        for process in killed:  # suspended first, so that none finishes before the others are lost
            os.kill(process, signal.SIGSTOP)
        threading.Timer(0.5, kill_all, (killed,)).start()
        found = actors.play(orders.order(1), weights)
        assert_same([found.episodes], [orders.played_here(1)])
        assert not set(killed) & set(places(actors)) and len(actors._actors) == 4
    actors.close()


@pytest.mark.slow
def test_episodes_that_lose_three_actors_one_after_the_other_end_the_run_in_one_line(cluster, clean_registry):
    register("test/Falling-v0", Texts)
    falling = replace(experiment("test/Falling-v0", collectors="ray"), env_kwargs={"kind": "dies"})
    with pytest.raises(LostCollectorsError, match=r"episodes \d+ to \d+ were lost 3 times, with collector") as caught:
        stepped(falling.make_trainer(), 1)
    assert "\n" not in str(caught.value)


class Fragile(TextParallelEnv):
    """Raises in its second turn. The class exists only in this process, as in a script or a notebook."""

    def __init__(self, falls: bool = True):
        super().__init__(("writer_0", "writer_1"), 2)
        self.falls = falls

    def deal(self, task):
        return dict.fromkeys(self.possible_agents, "say a word")

    def play(self, replies):
        if self.falls and self.turn:
            raise RuntimeError("the floor is wet")
        return Outcome(1.0, dict.fromkeys(self.possible_agents, "go on"))


@pytest.mark.slow
def test_what_is_registered_in_this_process_alone_reaches_the_actors_and_its_faults_come_back(cluster, clean_registry):
    register("test/Here-v0", lambda falls=False: Fragile(falls))
    expected = stepped(experiment("test/Here-v0").make_trainer(), 1)
    found = stepped(experiment("test/Here-v0", collectors="ray").make_trainer(), 1)
    assert_same([found[0][0]], [expected[0][0]])
    falling = replace(experiment("test/Here-v0", collectors="ray"), env_kwargs={"falls": True})
    with pytest.raises(EnvironmentFault, match="the floor is wet") as fault:
        stepped(falling.make_trainer(), 1)
    assert fault.value.update == 1 and fault.value.episode is not None


@pytest.mark.slow
def test_episodes_that_actors_play_ahead_are_those_that_copies_in_this_process_play(cluster):
    expected = stepped(experiment(max_staleness=1).make_trainer(), 3)
    found = stepped(experiment(max_staleness=1, collectors="ray").make_trainer(), 3)
    assert_same([episodes for episodes, _ in found], [episodes for episodes, _ in expected])
    assert [metrics["staleness"] for _, metrics in found] == [0, 1, 1]


def test_a_cluster_that_is_not_there_is_said_within_seconds():
    ray.shutdown()
    with pytest.raises(UserError, match=r"no Ray cluster answers at 'ray://127.0.0.1:1' .*refused.*10001"):
        Cluster(address="ray://127.0.0.1:1").join()
    assert not ray.is_initialized()


@pytest.mark.slow
def test_a_cluster_of_its_own_is_started_whatever_address_lies_about_and_left_by_the_last_of_its_members(monkeypatch):
    ray.shutdown()
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    own = Cluster(num_actors=5, num_cpus=0.5)
    own.join()
    own.join()
    leave()
    assert len(ray.nodes()) == 1 and ray.cluster_resources()["CPU"] >= 3
    leave()
    assert not ray.is_initialized()
    ray.init(address="local", num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level="error")
    own.join()
    leave()
    assert ray.is_initialized()  # another caller connected it
    ray.shutdown()


@pytest.mark.slow
def test_a_node_that_is_taken_away_while_it_plays_costs_no_episode_and_changes_none(monkeypatch):
    monkeypatch.setenv("RAY_worker_niceness", "0")
    ray.shutdown()
    nodes, second = two_nodes()
    orders = Orders(rollout_buffer_size=64)
    config = replace(orders.experiment.config, collectors=f"ray://{nodes.address}")
    orders.experiment = replace(orders.experiment, config=config)
    actors = orders.actors()
    try:
        weights = orders.weights()
        actors.play(orders.order(0), weights)
        assert len({each.place.partition(", process")[0] for each in actors._actors}) == 2
        gone = threading.Thread(target=nodes.remove_node, args=(second,))
        gone.start()
        found = actors.play(orders.order(1), weights)
        gone.join()
        again = actors.play(orders.order(2), weights)
        assert_same([found.episodes, again.episodes], [orders.played_here(1), orders.played_here(2)])
        assert sum(node["Alive"] for node in ray.nodes()) == 1
    finally:
        actors.close()
        ray.shutdown()
        nodes.shutdown()
