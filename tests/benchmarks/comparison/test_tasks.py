"""A comparison as tasks of Ray: all runs end, though a worker dies. Where Ray is not installed nothing is tested."""

from __future__ import annotations

import os
import signal

import pytest

from collm._cluster import Cluster
from collm.algorithms.runs.loggers import read_lines
from collm.benchmarks.comparison.runner import compare
from collm.benchmarks.comparison.suite import jobs, parse_suite
from collm.benchmarks.comparison.tasks import RayTasks

ray = pytest.importorskip("ray", reason="needs collm[ray], which the extra dev brings")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
TABLE = {
    "name": "grid",
    "seeds": [0, 1, 2, 3],
    "budget": {"environment_steps": 24},
    "config": {"rollout_buffer_size": 4, "save_interval": 1, "eval_num_samples": 2, "num_generations": 4},
    "model": {"max_new_tokens": 6, "device": "cpu"},
    "environments": [{"id": "collm/MiniBuild-v0", "name": "build", "kwargs": {"max_turns": 2, "reward": "dense"}}],
    "algorithms": [{"name": "magrpo"}, {"name": "marloo"}],
}


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
            os.kill(workers()[0], signal.SIGKILL)

    def ended(self, job, failure):
        self.ended_jobs.append((job, failure))


def workers():
    """Processes of Ray on this machine that are at a run."""
    found = []
    for name in filter(str.isdecimal, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/cmdline", encoding="utf-8", errors="replace") as file:
                if file.read().startswith("ray::_worked"):
                    found.append(int(name))
        except OSError:  # it has ended
            continue
    return found


def test_a_grid_of_eight_runs_ends_though_a_worker_dies(tmp_path, monkeypatch):
    monkeypatch.setenv("RAY_worker_niceness", "0")
    ray.init(
        address="local",
        num_cpus=1,
        object_store_memory=100_000_000,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="error",
    )
    killer, found = Killer(), jobs(parse_suite(TABLE))
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
