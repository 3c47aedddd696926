"""Runner of a comparison: starts or resumes its runs, several at a time, and collects failures."""

from __future__ import annotations

import multiprocessing
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from multiprocessing import connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from ..._errors import UserError
from ..._ownership import refuse_foreign_folder
from .prompted import check_prompted
from .suite import Job
from .worker import FAILURE_FILE, is_finished, work_in_process

# Message of a run: number of updates and latest metrics. The last message of a run is the error, or None.
Message: TypeAlias = "tuple[int, Mapping[str, float]] | str | None"


class Launcher(ABC):
    """Interface that starts runs and receives their messages. Several runs are active at the same time."""

    @abstractmethod
    def start(self, job: Job, directory: Path, stops_at: float | None = None) -> None:
        """Start or resume a run. At `stops_at`, a time of `time.monotonic`, the run ends with a checkpoint."""

    @abstractmethod
    def messages(self) -> list[tuple[Job, Message]]:
        """Messages of the runs since the last call. If there are none, wait for the first message."""

    @abstractmethod
    def close(self) -> None:
        """Stop the active runs. They can be resumed."""


@dataclass(frozen=True)
class _Running:
    job: Job
    process: BaseProcess
    channel: connection.Connection


class Processes(Launcher):
    """Runs each job in a local process, so that a crash ends only one run."""

    def __init__(self) -> None:
        # Processes are forked from a server that has imported the libraries, which saves some seconds per run.
        self._context: Any = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([work_in_process.__module__])
        self._running: list[_Running] = []

    def start(self, job: Job, directory: Path, stops_at: float | None = None) -> None:
        receiver, sender = self._context.Pipe(duplex=False)
        process = self._context.Process(target=work_in_process, args=(job, directory, sender, stops_at), daemon=True)
        process.start()
        sender.close()  # so that EOFError is raised here when the child dies
        self._running.append(_Running(job, process, receiver))

    def messages(self) -> list[tuple[Job, Message]]:
        ready = connection.wait([each.channel for each in self._running])
        heard: list[tuple[Job, Message]] = []
        for each in [each for each in self._running if each.channel in ready]:
            message: Message
            try:
                message = each.channel.recv()
            except EOFError:
                each.process.join()
                message = (
                    f"the process ended with exit code {each.process.exitcode} without an error in {FAILURE_FILE}: it "
                    "was killed, or ran out of memory"
                )
            heard.append((each.job, message))
            if not isinstance(message, tuple):
                each.process.join()
                self._running.remove(each)
        return heard

    def close(self) -> None:
        for each in self._running:
            each.process.terminate()
            each.process.join()


class Watcher(Protocol):
    """Callbacks of a comparison: `skipped` is called once at the start, the other methods once per event of a run."""

    def skipped(self, jobs: Sequence[Job]) -> None: ...

    def started(self, job: Job) -> None: ...

    def updated(self, job: Job, update: int, metrics: Mapping[str, float]) -> None: ...

    def ended(self, job: Job, failure: str | None) -> None: ...


@dataclass(frozen=True)
class ComparisonResult:
    skipped: Sequence[Job]
    finished: Sequence[Job]
    failures: Mapping[Path, str]  # folder of the run -> last line of the error
    left: Sequence[Job] = ()  # unfinished at the end of the time limit


def check_jobs(jobs: Sequence[Job]) -> None:
    """Check all runs before the first run starts. The message of an error contains environment and algorithm."""
    for job in {(job.algorithm, job.environment): job for job in jobs}.values():
        try:
            if job.is_prompted:
                check_prompted(job.experiment)
                continue
            job.experiment.check()
            _check_warmup(job)
        except (ValueError, OSError, ImportError) as error:
            raise UserError(f"{job.environment}, {job.algorithm}: {error}") from error


def _check_warmup(job: Job) -> None:
    """Raise an error if the critic's warm-up can use the whole budget of environment steps."""
    config = job.experiment.config
    num_updates = job.experiment.make_algorithm().critic_warmup
    if not num_updates or config.turns_per_update is not None or job.budget.unit != "environment_steps":
        return  # turns_per_update is checked by the run itself; a number of tokens is not known beforehand
    num_episodes, max_turns = config.rollout_buffer_size, job.experiment.task().max_turns
    used = num_updates * num_episodes * max_turns
    if used >= job.budget.amount:
        raise ValueError(
            f"critic_warmup={num_updates} can use {used} environment steps ({num_episodes} episodes of "
            f"{max_turns} turns per update). The budget is {job.budget.amount}, so no policy would learn; reduce "
            f"critic_warmup or rollout_buffer_size, or use a budget above {used}"
        )


def compare(
    jobs: Sequence[Job],
    out: Path,
    *,
    num_workers: int,
    watcher: Watcher,
    launcher: Launcher | None = None,
    minutes: float | None = None,
) -> ComparisonResult:
    """Start or resume every run that is not finished.

    Args:
        out: folder of the comparison.
        num_workers: number of concurrent runs.
        watcher: receives the progress.
        launcher: starts the runs. None: `Processes`.
        minutes: time limit. At the limit, active runs end with a checkpoint and no other run starts. None: no limit.

    Raises:
        ValueError: if `num_workers` is less than 1, or if the folder of a run contains files that collm did not write.
    """
    if num_workers < 1:
        raise ValueError(f"num_workers must be at least 1, got {num_workers}")
    skipped = [job for job in jobs if is_finished(out / job.directory)]
    waiting = [job for job in jobs if job not in skipped]
    for job in waiting:
        refuse_foreign_folder(out / job.directory)
    watcher.skipped(skipped)
    num_running = 0
    stops_at = None if minutes is None else time.monotonic() + 60 * minutes
    finished: list[Job] = []
    left: list[Job] = []
    failures: dict[Path, str] = {}
    launcher = launcher or Processes()
    try:
        while waiting or num_running:
            if stops_at is not None and time.monotonic() >= stops_at:
                left += waiting
                waiting = []
            while waiting and num_running < num_workers:
                job = waiting.pop(0)
                launcher.start(job, out / job.directory, stops_at)
                num_running += 1
                watcher.started(job)
            for job, message in launcher.messages() if num_running else ():
                if isinstance(message, tuple):
                    watcher.updated(job, *message)
                    continue
                num_running -= 1
                if message is None:
                    (finished if is_finished(out / job.directory) else left).append(job)
                else:
                    failures[out / job.directory] = message.strip().splitlines()[-1]
                watcher.ended(job, message)
    finally:
        launcher.close()
    return ComparisonResult(skipped, finished, failures, left)
