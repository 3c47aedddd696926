"""Runs of a comparison, several at a time: finished ones are skipped, interrupted ones resumed, failures kept."""

from __future__ import annotations

import multiprocessing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from multiprocessing import connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Protocol

from .suite import Job
from .worker import FAILURE_FILE, Channel, is_finished, work


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


@dataclass(frozen=True)
class _Running:
    job: Job
    process: BaseProcess
    channel: Channel


def compare(jobs: Sequence[Job], out: Path, *, num_workers: int, watcher: Watcher) -> ComparisonResult:
    """Start or resume every run that is not finished.

    Each run is a process of its own, so that a crash ends one run only. They are forked from a server that has imported
    the libraries already: that saves some seconds per run.

    Args:
        out: folder of the comparison; the runs lie under it.
        num_workers: runs at a time.

    Raises:
        ValueError: if `num_workers` is less than 1.
    """
    if num_workers < 1:
        raise ValueError(f"num_workers must be at least 1, got {num_workers}")
    context: Any = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([work.__module__])
    skipped = [job for job in jobs if is_finished(out / job.directory)]
    waiting = [job for job in jobs if job not in skipped]
    watcher.skipped(skipped)
    running: list[_Running] = []
    finished: list[Job] = []
    failures: dict[Path, str] = {}
    try:
        while waiting or running:
            while waiting and len(running) < num_workers:
                running.append(_start(context, waiting.pop(0), out))
                watcher.started(running[-1].job)
            ready = connection.wait([each.channel for each in running])
            for each in [each for each in running if each.channel in ready]:
                message = _received(each)
                if isinstance(message, tuple):
                    watcher.updated(each.job, *message)
                    continue
                each.process.join()
                running.remove(each)
                if message is None:
                    finished.append(each.job)
                else:
                    failures[out / each.job.directory] = message.strip().splitlines()[-1]
                watcher.ended(each.job, message)
    finally:
        for each in running:
            each.process.terminate()
            each.process.join()
    return ComparisonResult(skipped, finished, failures)


def _start(context: Any, job: Job, out: Path) -> _Running:
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=work, args=(job, out / job.directory, sender), daemon=True)
    process.start()
    sender.close()  # so that the child's end is the only one, and its death an end of file
    return _Running(job, process, receiver)


def _received(running: _Running) -> tuple[int, Mapping[str, float]] | str | None:
    try:
        message: tuple[int, Mapping[str, float]] | str | None = running.channel.recv()
    except EOFError:
        running.process.join()
        return (
            f"the process ended with code {running.process.exitcode} and without an error in {FAILURE_FILE}: it was "
            "killed, or ran out of memory"
        )
    return message
