"""Runs of a comparison, several at a time: finished ones are skipped, interrupted ones resumed, failures kept."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ..._errors import UserError
from ..._ownership import refuse_foreign_folder
from .launching import Launcher, Processes
from .suite import Job
from .worker import is_finished


class Watcher(Protocol):
    """Receives the progress of a comparison."""

    def skipped(self, jobs: Sequence[Job]) -> None: ...

    def started(self, job: Job) -> None: ...

    def updated(self, job: Job, update: int, metrics: Mapping[str, float]) -> None: ...

    def ended(self, job: Job, failure: str | None) -> None: ...


@dataclass(frozen=True)
class ComparisonResult:
    """Runs by how they ended."""

    skipped: Sequence[Job]
    finished: Sequence[Job]
    failures: Mapping[Path, str]  # last line of the error, by the run's folder
    left: Sequence[Job] = ()  # not finished when the time was up


def check_jobs(jobs: Sequence[Job]) -> None:
    """Refuse what would fail inside the runs, before the first of them starts.

    Raises:
        UserError: naming the environment and the algorithm.
    """
    for job in {(job.algorithm, job.environment): job for job in jobs}.values():
        try:
            job.experiment.check()
            _check_warmup(job)
        except (ValueError, OSError, ImportError) as error:
            raise UserError(f"{job.environment}, {job.algorithm}: {error}") from error


def _check_warmup(job: Job) -> None:
    """Refuse a budget of environment steps that the critic's warm-up uses up where no episode ends early."""
    config = job.experiment.config
    num_updates = job.experiment.make_algorithm().critic_warmup
    if not num_updates or config.turns_per_update is not None or job.budget.unit != "environment_steps":
        return  # the run's own check knows the steps of these, and nobody knows the tokens before they are written
    num_episodes, max_turns = config.rollout_buffer_size, job.experiment.task().max_turns
    used = num_updates * num_episodes * max_turns
    if used >= job.budget.amount:
        raise ValueError(
            f"critic_warmup={num_updates} updates of {num_episodes} episodes of up to {max_turns} turns use up "
            f"{used} of {job.budget.amount} environment steps before any policy learns; lower critic_warmup or "
            f"rollout_buffer_size, or give a budget above {used}"
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
        out: folder of the comparison; the runs lie under it.
        num_workers: runs at a time.
        launcher: where they run. None: each in a process of this machine.
        minutes: time after which no run is started, and those under way end with a checkpoint. None: no limit.

    Raises:
        ValueError: if `num_workers` is less than 1, or if the folder of a run has files of others.
    """
    if num_workers < 1:
        raise ValueError(f"num_workers must be at least 1, got {num_workers}")
    skipped = [job for job in jobs if is_finished(out / job.directory)]
    waiting = [job for job in jobs if job not in skipped]
    for job in waiting:
        refuse_foreign_folder(out / job.directory)
    watcher.skipped(skipped)
    num_running = 0
    stops_at = None if minutes is None else time.time() + 60 * minutes
    finished: list[Job] = []
    left: list[Job] = []
    failures: dict[Path, str] = {}
    launcher = launcher or Processes()
    try:
        while waiting or num_running:
            if stops_at is not None and time.time() >= stops_at:
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
