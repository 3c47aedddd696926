"""Training runs in processes that are killed, and comparisons of finished run folders."""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from dataclasses import dataclass, replace
from multiprocessing import forkserver, get_context
from pathlib import Path
from typing import Any

import pytest
import torch
from fakes import OnUpdate
from huggingface_hub import constants
from safetensors.torch import load_file
from transformers.utils import logging as transformers_logging

from collm.algorithms.learning.trainer import Trainer
from collm.algorithms.runs import run as running
from collm.algorithms.runs.assembly.experiment import Experiment
from collm.algorithms.runs.checkpoint import has_checkpoint, newest_checkpoint
from collm.algorithms.runs.evaluation import evaluate
from collm.algorithms.runs.loggers import LogConfig, read_lines
from collm.algorithms.runs.run import prepare_run, run_experiment, run_prepared
from collm.algorithms.runs.stopping import Stopped, StopSignals
from collm.benchmarks.cli import main

FINISHED, STOPPED, FAILED = 0, 3, 1
PLACES = {  # moments of a kill: the file or folder of the run on which the process works
    "settings": ("config.json",),
    "episodes": ("episodes.jsonl",),
    "metrics": ("metrics.jsonl",),
    "evaluation": ("evaluation.jsonl",),
    "checkpoint": ("checkpoints",),
    "models": ("agents", "critics"),
}
EVENT, EVALUATING = "event", "evaluating"  # any work on the run's files; a turn of held-out episodes
REQUEST = "request"  # a request of a command to the hub
CLOCK = ("seconds", "tokens_per_second")
CONTEXT: Any = get_context("forkserver")
CONTEXT.set_forkserver_preload([__name__, "mpe2.simple_spread_v3", "peft", "torch.utils.tensorboard"])


@dataclass(frozen=True)
class Kill:
    """Time and signal of a kill."""

    moment: str  # a key of PLACES, EVENT, EVALUATING, or "time"
    number: float  # of the event at this moment, from 1; for "time", seconds after the start of training
    signal: signal.Signals
    is_group: bool  # also kill the worker processes

    @classmethod
    def drawn(cls, rng: random.Random, most: dict[str, int], seconds: float) -> Kill:
        moment = rng.choice([*PLACES, EVALUATING, "checkpoint", "models", "time", "time"])
        latest = most.get(moment, 1) // (2 if moment == EVALUATING else 4)
        number = rng.uniform(0, seconds / 2) if moment == "time" else rng.randint(1, max(1, latest))
        how = rng.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
        return cls(moment, number, how, rng.random() < 0.5)

    def strike(self) -> None:
        (os.killpg if self.is_group else os.kill)(os.getpid(), self.signal)


class Watch:
    """Counts the work of a process on the files of a run, and kills it at a given event."""

    def __init__(self, directory: Path, kill: Kill | None):
        self.directory = f"{directory}/"
        self.kill = kill
        self.seen: Counter[str] = Counter()
        self.has_struck = False
        sync = os.fsync

        def watched_sync(number: int) -> None:
            self.saw(os.readlink(f"/proc/self/fd/{number}"))
            sync(number)

        os.fsync = watched_sync
        sys.addaudithook(self._hook)

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in ("open", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.truncate"):
            is_read = event == "open" and isinstance(arguments[2], int) and not arguments[2] & (os.O_WRONLY | os.O_RDWR)
            if isinstance(arguments[0], (str, Path)) and not is_read:
                self.saw(str(arguments[0]))

    def saw(self, path: str) -> None:
        if not path.startswith(self.directory):
            return
        self.counted(EVENT)
        first = Path(path).relative_to(self.directory).parts[:1]
        for place, names in PLACES.items():
            if first and first[0].removeprefix(".collm-new-").removeprefix(".collm-old-") in names:
                self.counted(place)

    def counted(self, moment: str) -> None:
        self.seen[moment] += 1
        kill = self.kill
        if kill is not None and not self.has_struck and (moment, self.seen[moment]) == (kill.moment, kill.number):
            self.has_struck = True
            kill.strike()

    def evaluating(self, collector: Any, *arguments: Any, **options: Any) -> Any:
        """Call `evaluate`, and count each turn of its episodes."""
        vector, send = collector.vector, collector.vector.send

        def counting(actions: Any) -> None:
            self.counted(EVALUATING)
            send(actions)

        vector.send = counting
        try:
            return evaluate(collector, *arguments, **options)
        finally:
            vector.send = send


def live(experiment: Experiment, directory: Path, resume: bool, kill: Kill | None, sinks: tuple[str, ...]) -> None:
    """Train in this process until the run is finished or killed, and exit with a status code."""
    os.setsid()
    CONTEXT.set_forkserver_preload(["collm.envs.vectors.processes", "collm.envs.writing.mini_writing.env"])
    torch.set_num_threads(1)
    transformers_logging.disable_progress_bar()
    watch = Watch(directory, kill)
    running.evaluate = watch.evaluating
    if kill is not None and kill.moment == "time":
        signal.signal(signal.SIGALRM, lambda *_: kill.strike())
        signal.setitimer(signal.ITIMER_REAL, max(1e-3, kill.number))
    start = time.monotonic()
    status = FINISHED
    try:
        with StopSignals() as stop:
            options = {"stop": stop, "log": LogConfig(log=sinks), "on_notice": lambda line: None}
            prepare_run(experiment, directory, resume=resume)
            run_prepared(experiment, directory, resume=resume, **options)
    except Stopped:
        status = STOPPED
    except BaseException:
        traceback.print_exc()
        status = FAILED
    if kill is None:
        write_facts(watch, start, directory)
    sys.stderr.flush()
    os._exit(status)


def write_facts(watch: Watch, start: float, directory: Path) -> None:
    """Write the number of events and the seconds of a process that was not killed."""
    facts = {"seen": watch.seen, "seconds": time.monotonic() - start}
    directory.with_suffix(".facts").write_text(json.dumps(facts))


def life(experiment: Experiment, directory: Path, kill: Kill | None, rng: random.Random, sinks: tuple[str, ...]) -> int:
    """Train in a new process. Returns the exit code, or the negative number of the signal that killed the process."""
    may_start_again = not directory.is_dir() or (not has_checkpoint(directory) and rng.random() < 0.5)
    return _exit_code(experiment, directory, not may_start_again, kill, sinks)


def status_of_life(experiment: Experiment, directory: Path, number: int) -> int:
    """Return the exit code of a new run that is killed at event `number` on its files."""
    return _exit_code(experiment, directory, False, Kill(EVENT, number, signal.SIGKILL, False), ())


def _exit_code(experiment: Experiment, directory: Path, resume: bool, kill: Kill | None, sinks: tuple[str, ...]) -> int:
    process = CONTEXT.Process(target=live, args=(experiment, directory, resume, kill, sinks))
    process.start()
    process.join(300)
    assert process.exitcode is not None, f"still running after {kill}"
    code: int = process.exitcode
    process.close()
    return code


def live_command(call: list[str], directory: Path, kill: Kill | None, hub: str) -> None:
    """Run a command of collm in this process and this folder, and exit with its status."""
    os.setsid()
    os.chdir(directory)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    torch.set_num_threads(1)
    os.environ["XDG_STATE_HOME"] = str(directory / "state")
    tempfile.tempdir = str(directory / "tmp")
    (directory / "tmp").mkdir(exist_ok=True)
    constants.ENDPOINT, constants.HF_HUB_OFFLINE, constants.HF_HUB_CACHE = hub, False, str(directory / "cache")
    constants.HUGGINGFACE_CO_URL_TEMPLATE = f"{hub}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
    constants.HF_HUB_DISABLE_XET = True
    watch = Watch(directory, kill)
    if kill is not None and kill.moment == "time":
        signal.signal(signal.SIGALRM, lambda *_: kill.strike())
        signal.setitimer(signal.ITIMER_REAL, max(1e-3, kill.number))
    start = time.monotonic()
    with open(directory.with_suffix(".log"), "a") as log:
        sys.stdout = sys.stderr = log
        try:
            status = main(call)
        except SystemExit as exit:
            status = exit.code if isinstance(exit.code, int) else FAILED
        except BaseException:
            traceback.print_exc()
            status = FAILED
    if kill is None:
        write_facts(watch, start, directory)
    os._exit(status)


def command_life(call: list[str], directory: Path, kill: Kill | None, server: Any) -> int:
    """Run a command in a new process. Returns its status, or the negative number of the signal that killed it."""
    process = CONTEXT.Process(target=live_command, args=(call, directory, kill, server.url))
    server.num_requests = 0

    def before(method: str, path: str) -> None:
        server.num_requests += 1
        if kill is not None and kill.moment == REQUEST and server.num_requests == kill.number:
            os.kill(process.pid, kill.signal)

    server.before, server.root = before, directory / "hub"
    process.start()
    process.join(300)
    assert process.exitcode is not None, f"still running after {kill}"
    code: int = process.exitcode
    process.close()
    return code


def cpu_seconds() -> float:
    """Return the CPU seconds of all training processes so far, including their worker processes."""
    forkserver.ensure_running()
    fields = Path(f"/proc/{forkserver._forkserver._forkserver_pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")


def traces(directory: Path) -> tuple[Any, ...]:
    """Return the records of a run without times."""
    rows = read_lines(directory / "metrics.jsonl")
    kept = [{name: value for name, value in row.items() if not name.startswith(CLOCK)} for row in rows]
    return kept, *((directory / f"{name}.jsonl").read_text() for name in ("episodes", "evaluation"))


def remains(directory: Path) -> dict[str, Any]:
    """Return records, state and hashes of the weights of a finished run, without times."""
    rows, episodes, _ = traces(directory)
    found = newest_checkpoint(directory)
    assert found is not None
    content = json.loads((found.path / "state.json").read_text())
    content["state"]["trainer"].pop("seconds")
    files = sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file())
    return {
        "metrics": rows,
        "episodes": episodes,
        "evaluation": read_lines(directory / "evaluation.jsonl"),
        "state": content,
        "tensors": _digest(load_file(found.path / "tensors.safetensors")),
        "weights": {
            str(path.relative_to(directory)): _digest(load_file(path))
            for folder in ("agents", "critics")
            for path in sorted((directory / folder).rglob("*.safetensors"))
        },
        "files": [name for name in files if not name.startswith("tensorboard")],
    }


def _digest(tensors: dict[str, torch.Tensor]) -> dict[str, str]:
    return {
        name: hashlib.sha256(tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes()).hexdigest()
        for name, tensor in tensors.items()
    }


def changed(experiment, **settings):
    return replace(experiment, config=replace(experiment.config, **settings))


def stop_after(update, experiment, directory, **options):
    """Run an experiment, and send it SIGTERM after an update. Returns the `Stopped` error."""

    def ask(number, metrics):
        if number == update:
            os.kill(os.getpid(), signal.SIGTERM)

    with StopSignals() as stop, pytest.raises(Stopped, match=f"stopped after update {update}; to resume: ") as found:
        run_experiment(experiment, directory, stop=stop, loggers=[OnUpdate(ask)], **options)
    return found.value


def kill_after(update, experiment, directory):
    """Run an experiment, and interrupt it at the start of the next update, without writing a checkpoint."""
    step = Trainer.step

    def dying(self, *args):
        if self.progress.update == update:
            raise KeyboardInterrupt
        return step(self, *args)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Trainer, "step", dying)
        run_experiment(experiment, directory)


def assert_resumes(experiment, directory, expected):
    """Resume a run, and compare its records with those of an uninterrupted run in the folder `expected`."""
    run_experiment(experiment, directory, resume=True)
    assert traces(directory) == traces(expected)
