"""Models at work side by side: one thread for each, with the results of one after the other.

What models of their own compute does not depend on each other. On several devices, or on the cores of a CPU, they need
not wait for each other.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch

from ...agents.core import Workplace
from ..config import TrainConfig

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class ModelTask(Generic[Result]):
    """Something to be done with one model."""

    workplace: Workplace | None
    """The model and its device; None: only the calling thread may do it."""
    work: Callable[[], Result]


class SideBySide:
    """Does tasks: those of one model in their order, those of different models at once.

    Args:
        is_on: whether threads are used. None: where it pays, which is on different devices, or where the CPU has a core
            for every thread that the models compute with.
        divides_threads: models on one CPU divide the threads that torch computes with in the calling thread; their
            results are then those of so many threads. False: each of them computes with as many.
    """

    def __init__(self, is_on: bool | None = None, *, divides_threads: bool = True) -> None:
        self.is_on = is_on
        self._divides_threads = divides_threads
        self._pool: ThreadPoolExecutor | None = None
        self._pool_size = 0
        self._working: set[int] = set()  # threads

    @classmethod
    def of(cls, config: TrainConfig) -> SideBySide:
        """What the settings of a training ask for; with `deterministic` each model has all threads."""
        return cls(config.side_by_side, divides_threads=not config.deterministic)

    def results(self, tasks: Sequence[ModelTask[Result]]) -> list[Result]:
        """What the tasks return, in their order.

        Raises:
            Exception: the first one in the order of the tasks. Tasks of other models are done nevertheless.
            KeyboardInterrupt: if it comes to the calling thread; it ends the work of the others too.
        """
        by_workplace: dict[Workplace, list[int]] = {}
        here = [number for number, task in enumerate(tasks) if task.workplace is None]
        for number, task in enumerate(tasks):
            if task.workplace is not None:
                by_workplace.setdefault(task.workplace, []).append(number)
        if not self.uses_threads(list(by_workplace)):
            return [task.work() for task in tasks]
        done: dict[int, Result] = {}
        failed: dict[int, Exception] = {}

        def work(numbers: Sequence[int]) -> None:
            for number in numbers:
                try:
                    done[number] = tasks[number].work()
                except Exception as error:  # raised below, in the calling thread
                    failed[number] = error
                    return

        pool = self._threads(len(by_workplace))
        begun: list[Future[None]] = []
        is_over = threading.Event()
        own_threads, num_threads = torch.get_num_threads(), self._num_threads(list(by_workplace))
        try:
            for numbers in by_workplace.values():
                begun.append(pool.submit(self._interruptibly, is_over, num_threads, work, numbers))
            work(here)
            wait(begun)
        except BaseException:
            is_over.set()
            self._interrupt()
            wait(begun)
            raise
        finally:
            torch.set_num_threads(own_threads)  # threads that begin later take the newest number
        for each in begun:
            each.result()
        if failed:
            raise failed[min(failed)]
        return [done[number] for number in range(len(tasks))]

    def uses_threads(self, workplaces: Sequence[Workplace]) -> bool:
        """Whether these models, which differ, compute at the same time."""
        if len(workplaces) < 2 or self.is_on is not None:
            return len(workplaces) > 1 and bool(self.is_on)
        devices = {workplace.device for workplace in workplaces}
        if len(devices) > 1:
            return True
        return devices == {torch.device("cpu")} and self._num_threads(workplaces) * len(workplaces) <= num_cores()

    def _num_threads(self, workplaces: Sequence[Workplace]) -> int:
        """Threads that each of the models computes with."""
        num_threads = torch.get_num_threads()
        is_divided = self._divides_threads and all(workplace.device.type == "cpu" for workplace in workplaces)
        return max(1, num_threads // len(workplaces)) if is_divided else num_threads

    def _threads(self, count: int) -> ThreadPoolExecutor:
        if self._pool is None or self._pool_size < count:
            if self._pool is not None:
                self._pool.shutdown()
            self._pool = ThreadPoolExecutor(count, "collm-model")
            self._pool_size = count
        return self._pool

    def _interruptibly(
        self, is_over: threading.Event, num_threads: int, work: Callable[[Sequence[int]], None], numbers: Sequence[int]
    ) -> None:
        torch.set_num_threads(num_threads)  # of this thread alone: each has its own
        thread = threading.get_ident()
        self._working.add(thread)
        try:
            if not is_over.is_set():
                work(numbers)
        finally:
            self._working.discard(thread)

    def _interrupt(self) -> None:
        """Let a Ctrl-C that came to the calling thread come to the others, which Python does not interrupt."""
        for thread in tuple(self._working):
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(KeyboardInterrupt))
        if self._pool is not None:
            self._pool.shutdown(wait=False)
        self._pool = None


def num_cores() -> int:
    """Cores of the CPU that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # macOS and Windows do not bind processes to cores
        return os.cpu_count() or 1
