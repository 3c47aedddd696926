"""Concurrent execution of tasks of independent models, in threads; results equal those of sequential execution."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextvars import copy_context
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch

from ...agents.core import Workplace
from ..config import TrainConfig

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class ModelTask(Generic[Result]):
    """Function that computes with one model."""

    workplace: Workplace | None  # model and device; None: the task runs in the calling thread
    work: Callable[[], Result]


class SideBySide:
    """Executor that runs tasks of one model in sequence, and tasks of different models concurrently in threads.

    With is_on=None, threads are used if the models are on different devices, or if the CPU has a core for every torch
    thread of every model. `divides_threads` divides the calling thread's torch threads among models on one CPU.
    """

    def __init__(self, is_on: bool | None = None, *, divides_threads: bool = True) -> None:
        self.is_on = is_on
        self._divides_threads = divides_threads
        self._pool: ThreadPoolExecutor | None = None
        self._pool_size = 0
        self._busy: set[int] = set()  # identifiers of threads that compute

    @classmethod
    def of(cls, config: TrainConfig) -> SideBySide:
        """Make the executor for training settings. With `deterministic`, each model computes with all threads."""
        return cls(config.side_by_side, divides_threads=not config.deterministic)

    def results(self, tasks: Sequence[ModelTask[Result]]) -> list[Result]:
        """Run the tasks and return their results in order.

        Raises the first error in the order of the tasks; tasks of other models still run to their end. A
        `KeyboardInterrupt` in the calling thread is also raised in the other threads.
        """
        by_workplace: dict[Workplace | None, list[int]] = {None: []}
        for number, task in enumerate(tasks):
            by_workplace.setdefault(task.workplace, []).append(number)
        here = by_workplace.pop(None)
        workplaces = [workplace for workplace in by_workplace if workplace is not None]
        if not self.uses_threads(workplaces):
            results = []  # filled by a loop: before Python 3.12, a comprehension adds a frame to every traceback
            for task in tasks:
                results.append(task.work())
            return results
        done: dict[int, Result] = {}
        failed: dict[int, Exception] = {}
        is_over = threading.Event()
        own_threads, num_threads = torch.get_num_threads(), self._num_threads(workplaces)

        def work(numbers: Sequence[int]) -> None:
            for number in numbers:
                try:
                    done[number] = tasks[number].work()
                except Exception as error:  # raised below, in the calling thread
                    failed[number] = error
                    return

        def work_in_thread(numbers: Sequence[int]) -> None:
            torch.set_num_threads(num_threads)  # torch stores this number per thread
            use_device(tasks[numbers[0]].workplace)
            thread = threading.get_ident()
            self._busy.add(thread)
            try:
                if not is_over.is_set():
                    work(numbers)
            finally:
                self._busy.discard(thread)

        pool = self._pool_of(len(workplaces))
        begun: list[Future[None]] = []
        try:
            for numbers in by_workplace.values():
                begun.append(pool.submit(copy_context().run, work_in_thread, numbers))  # with the current phase
            work(here)
            wait(begun)
        except BaseException:
            is_over.set()
            self._interrupt()
            wait(begun)
            raise
        finally:
            torch.set_num_threads(own_threads)  # new threads inherit the number that was set last
        for each in begun:
            each.result()
        if failed:
            raise failed[min(failed)]
        return [done[number] for number in range(len(tasks))]

    def uses_threads(self, workplaces: Sequence[Workplace]) -> bool:
        """Return True if tasks of these different models run concurrently."""
        if len(workplaces) < 2 or self.is_on is not None:
            return len(workplaces) > 1 and bool(self.is_on)
        devices = {workplace.device for workplace in workplaces}
        if len(devices) > 1:
            return True
        return devices == {torch.device("cpu")} and self._num_threads(workplaces) * len(workplaces) <= num_cores()

    def _num_threads(self, workplaces: Sequence[Workplace]) -> int:
        num_threads = torch.get_num_threads()
        is_divided = self._divides_threads and all(workplace.device.type == "cpu" for workplace in workplaces)
        return max(1, num_threads // len(workplaces)) if is_divided else num_threads

    def _pool_of(self, size: int) -> ThreadPoolExecutor:
        if self._pool is None or self._pool_size < size:
            if self._pool is not None:
                self._pool.shutdown()
            self._pool, self._pool_size = ThreadPoolExecutor(size, "collm-model"), size
        return self._pool

    def _interrupt(self) -> None:
        """Raise KeyboardInterrupt in the busy threads, because Python raises it only in the main thread."""
        for thread in tuple(self._busy):
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(KeyboardInterrupt))
        if self._pool is not None:
            self._pool.shutdown(wait=False)
        self._pool = None


def use_device(workplace: Workplace | None) -> None:
    """Make a model's GPU the current device of this thread. In a new thread, the current device is GPU 0."""
    if workplace is not None and workplace.device.type == "cuda":
        torch.cuda.set_device(workplace.device)


def num_cores() -> int:
    """Return the number of CPU cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # macOS and Windows have no CPU affinity of processes
        return os.cpu_count() or 1
