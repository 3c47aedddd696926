"""Comparisons: finished runs are skipped, interrupted runs resume, and failed runs do not stop the others."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from recorded import read_summaries

from collm._errors import UserError
from collm._ownership import write_text
from collm._toml import tomllib
from collm.algorithms.config import TrainConfig
from collm.algorithms.runs.checkpoint import newest_update
from collm.algorithms.runs.loggers import read_lines
from collm.algorithms.runs.run import is_over
from collm.benchmarks.comparison import worker
from collm.benchmarks.comparison.runner import check_jobs, compare
from collm.benchmarks.comparison.suite import jobs, parse_suite
from collm.benchmarks.report.comparison import Comparison
from collm.benchmarks.report.tables import tables

SUITE = """
seeds = [0]
budget = {environment_steps = 24}
config = {rollout_buffer_size = 4, save_interval = 1, eval_num_samples = 4}
model = {max_new_tokens = 6, device = "cpu"}
environments = [{id = "collm/MiniBuild-v0", name = "build", kwargs = {max_turns = 2, reward = "dense"}}]
[[algorithms]]
name = "magrpo"
config = {num_generations = 4}
[[algorithms]]
name = "maac"
config = {critic_warmup = 1, critic_batch_size = 4, critic_steps = 1}
"""
TABLE = tomllib.loads(SUITE)


class Notes:
    """A watcher that remembers."""

    def __init__(self) -> None:
        self.number_skipped = 0
        self.seen: list[tuple[str, str]] = []

    def skipped(self, jobs):
        self.number_skipped = len(jobs)

    def started(self, job):
        self.seen.append(("started", job.algorithm))

    def updated(self, job, update, metrics):
        self.seen.append((f"update {update}", job.algorithm))

    def ended(self, job, failure):
        self.seen.append(("failed" if failure else "ended", job.algorithm))


def test_a_comparison_runs_all_and_then_nothing_again(tmp_path):
    found = jobs(parse_suite(TABLE))
    first, second = Notes(), Notes()
    outcome = compare(found, tmp_path, num_workers=1, watcher=first)
    assert len(outcome.finished) == 2 and not outcome.failures
    expected = ["started", "update 1", "update 2", "update 3", "ended"]
    assert first.seen == [(word, name) for name in ("magrpo", "maac") for word in expected]
    directory = tmp_path / found[0].directory
    files = {path.name for path in directory.iterdir()}
    assert {"config.json", "metrics.jsonl", "episodes.jsonl", "evaluation.jsonl", "agents", "checkpoints"} <= files
    assert read_lines(directory / "metrics.jsonl")[-1]["environment_steps"] == 24
    again = compare(found, tmp_path, num_workers=1, watcher=second)
    assert len(again.skipped) == 2 and second.number_skipped == 2 and second.seen == []


def test_suites_that_cannot_start_are_refused_or_left(tmp_path):
    suite = parse_suite({**TABLE, "config": {**TABLE["config"], "reference_kl_estimator": "k1"}})
    with pytest.raises(UserError, match=r"magrpo: reference_kl_estimator='k1'"):
        check_jobs(jobs(suite))
    found, notes = jobs(parse_suite(TABLE)), Notes()
    outcome = compare(found, tmp_path, num_workers=1, watcher=notes, minutes=0)
    assert outcome.left == found and not outcome.finished and notes.seen == []


@pytest.mark.slow
def test_a_run_that_fails_does_not_stop_the_others(tmp_path):
    good, other = jobs(parse_suite(TABLE))
    bad = replace(other, experiment=replace(other.experiment, env_kwargs={"max_turns": 99}))
    notes = Notes()
    outcome = compare([bad, good], tmp_path, num_workers=2, watcher=notes)
    assert [job.algorithm for job in outcome.finished] == ["magrpo"]
    ((directory, why),) = outcome.failures.items()
    assert directory == tmp_path / bad.directory and "max_turns" in why
    assert "max_turns" in (directory / "failure.txt").read_text()
    assert not compare([other], tmp_path, num_workers=1, watcher=notes).failures
    assert not (directory / "failure.txt").exists()


def test_a_run_whose_time_is_up_ends_with_a_checkpoint_and_resumes(tmp_path, monkeypatch):
    job = jobs(parse_suite({**TABLE, "config": {**TABLE["config"], "save_interval": 0}}))[0]
    updates: list[int] = []
    clock = SimpleNamespace(monotonic=lambda: 100.0 if updates else 0.0, perf_counter=time.perf_counter)
    monkeypatch.setattr(worker, "time", clock)
    assert worker.work(job, tmp_path, lambda update, metrics: updates.append(update), 50.0) is None
    assert updates == [1] and newest_update(tmp_path) == 1
    assert not worker.is_finished(tmp_path) and not (tmp_path / worker.FAILURE_FILE).exists()
    assert worker.work(job, tmp_path, lambda update, metrics: updates.append(update)) is None
    assert updates == [1, 2, 3] and worker.is_finished(tmp_path)
    assert [row["update"] for row in read_lines(tmp_path / "metrics.jsonl")] == [1, 2, 3]


def test_a_folder_with_other_settings_is_refused_and_left_alone(tmp_path):
    job = jobs(parse_suite(TABLE))[0]
    directory = tmp_path / job.directory
    directory.mkdir(parents=True)
    saved = json.dumps(job.experiment.to_json() | {"env": "collm/MiniCode-v1"})
    write_text(directory, "config.json", saved)
    outcome = compare([job], tmp_path, num_workers=1, watcher=Notes())
    assert "other settings" in next(iter(outcome.failures.values()))
    assert (directory / "config.json").read_text() == saved


def test_a_run_from_before_a_setting_existed_is_the_same(tmp_path):
    experiment = jobs(parse_suite(TABLE))[0].experiment
    saved = experiment.to_json()
    del saved["config"]["early_termination_threshold"]
    (tmp_path / "config.json").write_text(json.dumps(saved))
    assert not worker._has_checkpoint(experiment, tmp_path)  # and raises no error


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({}, False),
        ({"num_updates": 3}, True),
        ({"max_environment_steps": 24}, True),
        ({"max_environment_steps": 25}, False),
        ({"max_sampled_tokens": 90, "max_environment_steps": 1_000}, True),
    ],
)
def test_a_run_is_over_when_one_of_its_limits_is_reached(limits, expected):
    progress = SimpleNamespace(update=3, num_turns=24, num_tokens=100)
    assert is_over(SimpleNamespace(config=TrainConfig(**limits), progress=progress)) is expected


@pytest.mark.slow
def test_a_comparison_killed_again_and_again_ends_with_the_same_table(tmp_path):
    suite = tmp_path / "suite.toml"
    suite.write_text(SUITE.replace("[0]", "[0, 1]").replace("steps = 24", "steps = 80"))

    def start(out: Path) -> subprocess.Popen:
        command = [sys.executable, "-m", "collm.benchmarks.cli", "benchmark", str(suite), "--out", str(out)]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        return subprocess.Popen([*command, "--workers", "2"], **quiet, start_new_session=True)

    def num_updates() -> int:
        return sum(len(path.read_bytes().splitlines()) for path in (tmp_path / "war").rglob("metrics.jsonl"))

    assert start(tmp_path / "peace").wait() == 0
    rng = random.Random()
    for kill in (os.killpg, os.kill, os.killpg, os.kill, os.killpg):
        before = num_updates()
        process = start(tmp_path / "war")
        while num_updates() <= before and process.poll() is None:
            time.sleep(0.1)
        time.sleep(rng.uniform(0, 4))
        if process.poll() is None:
            kill(process.pid, signal.SIGKILL)
        process.wait()
    assert start(tmp_path / "war").wait() == 0
    peace, war = (Comparison(read_summaries(tmp_path / name)) for name in ("peace", "war"))
    assert tables(war) == tables(peace)
    for one, other in zip(peace.summaries, war.summaries, strict=True):
        assert one.evaluations == other.evaluations and one.diagnostics == other.diagnostics
        assert list(one.curve("return")) == list(other.curve("return"))
