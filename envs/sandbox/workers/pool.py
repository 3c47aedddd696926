"""Workers lent to threads, made when first needed, replaced when worn or broken, dropped in forked processes."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from .worker import Worker


class _Stock:
    """The workers of a pool; apart from it so that they can be ended after it is gone."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.reset()

    def reset(self) -> None:
        self.owner = os.getpid()
        self.lock = threading.Lock()
        self.places = threading.BoundedSemaphore(self.size)
        self.idle: list[Worker] = []
        self.lent: set[Worker] = set()

    def close(self) -> None:
        if os.getpid() != self.owner:
            return
        with self.lock:
            idle, self.idle = self.idle, []
        for worker in idle:
            worker.close()

    def abandon(self) -> None:
        """In a forked process: the workers stay the parent's, and threads that held the locks do not exist here."""
        for worker in (*self.idle, *self.lent):
            worker.abandon()
        self.reset()


_stocks: weakref.WeakSet[_Stock] = weakref.WeakSet()


def _after_fork() -> None:
    for stock in list(_stocks):
        stock.abandon()


os.register_at_fork(after_in_child=_after_fork)


class Pool:
    """At most `size` workers, each used by one thread at a time."""

    def __init__(self, make: Callable[[], Worker], size: int, runs_per_worker: int) -> None:
        """
        Args:
            make: a new worker that has been found sound.
            size: how many threads can run code at the same time; further ones wait.
            runs_per_worker: after this many runs a worker is replaced.
        """
        self._make = make
        self._runs_per_worker = runs_per_worker
        self._stock = _Stock(size)
        _stocks.add(self._stock)
        self._finalizer = weakref.finalize(self, self._stock.close)

    @contextmanager
    def lease(self) -> Iterator[Worker]:
        """A worker for the duration of the block; if that raises, its state is unknown and it is thrown away."""
        stock = self._stock
        with stock.places:
            with stock.lock:
                worker = stock.idle.pop() if stock.idle else None
            worker = worker or self._make()
            stock.lent.add(worker)
            is_sound = False
            try:
                yield worker
                is_sound = worker.num_runs < self._runs_per_worker
            finally:
                stock.lent.discard(worker)
                if is_sound:
                    with stock.lock:
                        stock.idle.append(worker)
                else:
                    worker.close()

    @property
    def process_ids(self) -> tuple[int, ...]:
        """Process ids of the workers that are idle now."""
        with self._stock.lock:
            return tuple(worker.process_id for worker in self._stock.idle)

    def close(self) -> None:
        """End the idle workers; a later lease makes new ones."""
        self._stock.close()
