"""A comparison as tasks of Ray: all runs end, although a worker dies."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest
from clusters import NODE, processes

from collm._cluster import Cluster
from collm.algorithms.runs.loggers import read_lines
from collm.benchmarks.comparison.runner import compare
from collm.benchmarks.comparison.suite import Budget, jobs, read_suite
from collm.benchmarks.comparison.tasks import RayTasks

ray = pytest.importorskip("ray", reason="needs collm[ray], which the extra dev brings")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
SUITE = """
name = "grid"
seeds = [0, 1]
budget = {environment_steps = 96}
config = {rollout_buffer_size = 4, save_interval = 1, eval_num_samples = 2, num_generations = 4}
model = {max_new_tokens = 6, device = "cpu"}
environments = [{id = "collm/MiniBuild-v0", name = "build", kwargs = {max_turns = 2, reward = "dense"}}]
algorithms = [{name = "magrpo"}, {name = "marloo"}]
"""


class Killer:
    """A watcher that kills the worker of the first run that has made an update, and counts."""

    def __init__(self):
        self.killed = None
        self.ended_jobs = []

    def skipped(self, jobs):
        pass

    def started(self, job):
        pass

    def updated(self, job, update, metrics):
        if self.killed is None:
            self.killed = job
            os.kill(processes("ray::_worked")[0], signal.SIGKILL)

    def ended(self, job, failure):
        self.ended_jobs.append((job, failure))


def test_a_grid_of_eight_runs_ends_though_a_worker_dies(tmp_path, monkeypatch):
    monkeypatch.setenv("RAY_worker_niceness", "0")
    quiet = {"include_dashboard": False, "log_to_driver": False, "logging_level": "error"}
    ray.init(address="local", num_cpus=1, object_store_memory=100_000_000, **quiet)
    killer = Killer()
    (tmp_path / "grid.toml").write_text(SUITE)
    suite = replace(read_suite(tmp_path / "grid.toml"), seeds=(0, 1, 2, 3), budget=Budget(24, "environment_steps"))
    found = jobs(suite)
    launcher = RayTasks(Cluster(num_cpus=0.5))
    assert launcher.num_at_a_time == 2
    try:
        outcome = compare(found, tmp_path, num_workers=2, watcher=killer, launcher=launcher)
    finally:
        ray.shutdown()
    assert len(found) == 8 == len(outcome.finished) and not outcome.failures
    assert killer.killed is not None and len(killer.ended_jobs) == 8
    for job in found:
        lines = read_lines(tmp_path / job.directory / "metrics.jsonl")
        assert [line["update"] for line in lines] == [1, 2, 3] and lines[-1]["environment_steps"] == 24


def test_the_command_ends_a_grid_on_two_nodes_though_one_of_them_is_lost(tmp_path, monkeypatch):
    """The node goes while a run is under way on each of the two; what is left has room for one run at a time."""
    from ray.cluster_utils import Cluster as Nodes

    monkeypatch.setenv("RAY_worker_niceness", "0")
    suite, out = tmp_path / "grid.toml", tmp_path / "out"
    suite.write_text(SUITE)
    nodes = Nodes(initialize_head=True, head_node_args={**NODE, "include_dashboard": False})
    try:
        second = nodes.add_node(**NODE)
        arguments = ["benchmark", str(suite), "--on", f"ray://{nodes.address}", "--out", str(out)]
        output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        command = subprocess.Popen([sys.executable, "-m", "collm", *arguments], **output)
        deadline = time.monotonic() + 300
        while sum(bool(path.stat().st_size) for path in out.rglob("metrics.jsonl")) < 2:
            assert command.poll() is None and time.monotonic() < deadline
            time.sleep(0.2)
        before = processes("ray::_worked")
        assert len(before) == 2
        nodes.remove_node(second)
        assert len(set(before) & set(processes("ray::_worked"))) == 1
        text, _ = command.communicate(timeout=900)
    finally:
        nodes.shutdown()
    assert command.returncode == 0, text
    for job in jobs(read_suite(suite)):
        lines = read_lines(out / job.directory / "metrics.jsonl")
        assert [line["update"] for line in lines] == list(range(1, 13)), text
