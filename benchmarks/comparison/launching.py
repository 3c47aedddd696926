"""Where the runs of a comparison are started, and what is heard of them."""

from __future__ import annotations

import multiprocessing
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing import connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, TypeAlias

from .suite import Job
from .worker import FAILURE_FILE, work

Message: TypeAlias = "tuple[int, Mapping[str, float]] | str | None"
"""Updates done with their metrics; at the end the error, or None."""


class Launcher(ABC):
    """Starts runs, several at a time."""

    @abstractmethod
    def start(self, job: Job, directory: Path, stops_at: float | None = None) -> None:
        """Start a run or resume it, in its folder.

        Args:
            stops_at: time at which an unfinished run ends with a checkpoint, in seconds since the epoch. None: never.
        """

    @abstractmethod
    def messages(self) -> list[tuple[Job, Message]]:
        """What has been heard since the last call; waits if there is nothing yet."""

    @abstractmethod
    def close(self) -> None:
        """End the runs that are under way; they can be resumed."""


@dataclass(frozen=True)
class _Running:
    job: Job
    process: BaseProcess
    channel: connection.Connection


class Processes(Launcher):
    """Each run is a process of this machine, so that a crash ends one run only.

    They are forked from a server that has imported the libraries already: that saves some seconds per run.
    """

    def __init__(self) -> None:
        self._context: Any = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([work.__module__])
        self._running: list[_Running] = []

    def start(self, job: Job, directory: Path, stops_at: float | None = None) -> None:
        receiver, sender = self._context.Pipe(duplex=False)
        process = self._context.Process(target=work, args=(job, directory, sender, stops_at), daemon=True)
        process.start()
        sender.close()  # so that the child's end is the only one, and its death an end of file
        self._running.append(_Running(job, process, receiver))

    def messages(self) -> list[tuple[Job, Message]]:
        ready = connection.wait([each.channel for each in self._running])
        heard: list[tuple[Job, Message]] = []
        for each in [each for each in self._running if each.channel in ready]:
            message = _received(each)
            heard.append((each.job, message))
            if not isinstance(message, tuple):
                each.process.join()
                self._running.remove(each)
        return heard

    def close(self) -> None:
        for each in self._running:
            each.process.terminate()
            each.process.join()


def _received(running: _Running) -> Message:
    try:
        message: Message = running.channel.recv()
    except EOFError:
        running.process.join()
        return (
            f"the process ended with code {running.process.exitcode} and without an error in {FAILURE_FILE}: it was "
            "killed, or ran out of memory"
        )
    return message
