"""Runs of a comparison, several at a time: finished ones are skipped, interrupted ones resumed, failures kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

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


def compare(
    jobs: Sequence[Job], out: Path, *, num_workers: int, watcher: Watcher, launcher: Launcher | None = None
) -> ComparisonResult:
    """Start or resume every run that is not finished.

    Args:
        out: folder of the comparison; the runs lie under it.
        num_workers: runs at a time.
        launcher: where they run. None: each in a process of this machine.

    Raises:
        ValueError: if `num_workers` is less than 1.
    """
    if num_workers < 1:
        raise ValueError(f"num_workers must be at least 1, got {num_workers}")
    skipped = [job for job in jobs if is_finished(out / job.directory)]
    waiting = [job for job in jobs if job not in skipped]
    watcher.skipped(skipped)
    num_running = 0
    finished: list[Job] = []
    failures: dict[Path, str] = {}
    launcher = launcher or Processes()
    try:
        while waiting or num_running:
            while waiting and num_running < num_workers:
                job = waiting.pop(0)
                launcher.start(job, out / job.directory)
                num_running += 1
                watcher.started(job)
            for job, message in launcher.messages():
                if isinstance(message, tuple):
                    watcher.updated(job, *message)
                    continue
                num_running -= 1
                if message is None:
                    finished.append(job)
                else:
                    failures[out / job.directory] = message.strip().splitlines()[-1]
                watcher.ended(job, message)
    finally:
        launcher.close()
    return ComparisonResult(skipped, finished, failures)
