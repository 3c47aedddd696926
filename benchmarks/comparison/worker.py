"""Worker of a comparison: starts or resumes one run and reports its progress."""

from __future__ import annotations

import json
import math
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from multiprocessing import connection, parent_process
from pathlib import Path

import torch

from ..._errors import UserError
from ..._ownership import write_text
from ...algorithms.runs.assembly.experiment import Experiment, for_chat
from ...algorithms.runs.checkpoint import has_checkpoint
from ...algorithms.runs.evaluation import Evaluated
from ...algorithms.runs.files import CONFIG_FILE, only_one, read_config, write_file
from ...algorithms.runs.loggers import Callback
from ...algorithms.runs.run import run_experiment
from ...algorithms.runs.stopping import StopAsked, Stopped, StopSignals
from .prompted import evaluate_prompted
from .suite import Job

LABEL_FILE = "benchmark.json"
FINISHED_FILE = "finished.json"
FAILURE_FILE = "failure.txt"
Send = Callable[[int, Mapping[str, float]], None]  # called after each update with the number of updates and the metrics


def is_finished(directory: Path) -> bool:
    """True if a run has used its budget and has stored its models."""
    return (directory / FINISHED_FILE).is_file()


class Deadline(StopSignals):
    """Stops a run at a signal, or at the time `at` of `time.monotonic`, common to all processes. None: at a signal."""

    def __init__(self, at: float | None):
        super().__init__()
        self._at = at

    def check(self) -> None:
        super().check()
        if self._at is not None and time.monotonic() >= self._at:
            raise StopAsked(signal.SIGALRM)


def work_in_process(job: Job, directory: Path, channel: connection.Connection, stops_at: float | None) -> None:
    channel.send(work(job, directory, lambda *update: channel.send(update), stops_at))
    channel.close()


def work(job: Job, directory: Path, send: Send, stops_at: float | None = None) -> str | None:
    """Start or resume a run in a folder. Return its traceback, or None without an error.

    At `stops_at`, a time of `time.monotonic`, an unfinished run ends with a checkpoint.
    """
    _die_with_parent()
    # Runs are concurrent, and more threads do not make small models faster.
    torch.set_num_threads(1)
    try:
        with only_one(directory, waits=True):  # the worker of a killed comparison may still be running
            if not is_finished(directory):
                _run(job, directory, send, Deadline(stops_at))
    except (Stopped, StopAsked):
        pass  # the next call resumes from the checkpoint
    except Exception:
        # An error in one run must not stop the other runs. The traceback is stored in the folder of the run.
        failure = traceback.format_exc()
        write_text(directory, FAILURE_FILE, failure)
        return failure
    return None


def _run(job: Job, directory: Path, send: Send, stop: Deadline) -> None:
    experiment, _ = for_chat(job.experiment, directory)
    can_resume = _has_checkpoint(experiment, directory)
    (directory / FAILURE_FILE).unlink(missing_ok=True)
    write_file(directory / LABEL_FILE, json.dumps(job.label, indent=2, ensure_ascii=False) + "\n")
    start, sender = time.perf_counter(), _Sender(send)
    if job.is_prompted:
        num_updates, costs = 0, evaluate_prompted(experiment, directory, stop)
    else:
        trainer = run_experiment(experiment, directory, resume=can_resume, loggers=[sender], stop=stop)
        num_updates, costs = trainer.progress.update, dict(sender.costs)
    end = {
        "updates": num_updates,
        "seconds_since_last_start": time.perf_counter() - start,
        **{name: value for name, value in costs.items() if math.isfinite(value)},
    }
    write_file(directory / FINISHED_FILE, json.dumps(end, indent=2) + "\n")


@dataclass
class _Sender(Callback):
    send: Send
    costs: Mapping[str, float] = field(default_factory=dict)
    """Seconds and tokens per sampled reply in the last evaluation."""

    def log_evaluation(self, update: int, evaluated: Evaluated) -> None:
        self.costs = evaluated.costs

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self.send(step, dict(metrics))


def _has_checkpoint(experiment: Experiment, directory: Path) -> bool:
    if not (directory / CONFIG_FILE).is_file():
        return False
    try:
        saved = read_config(directory)
    except UserError:  # the run was killed while writing its first file
        return False
    try:
        # Missing settings have their defaults.
        is_same = Experiment.from_json(saved).resolved() == experiment.resolved()
    except UserError:  # the file has a removed setting or an invalid value
        is_same = False
    if not is_same:
        raise ValueError(f"{directory} has a run with other settings; give the comparison another --out")
    return has_checkpoint(directory)


def _die_with_parent() -> None:
    """Make this process exit when its parent exits. Otherwise two comparisons could write to one folder."""
    parent = parent_process()
    if parent is None:
        return
    sentinel = parent.sentinel

    def wait() -> None:
        connection.wait([sentinel])
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
