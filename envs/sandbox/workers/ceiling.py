"""What all runs of this process may take together, however many sandboxes and threads ask for them."""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

_RUNS_PER_PROCESSOR: Final = 2  # one may wait while another computes
_SHARE_OF_MEMORY: Final = 0.75
_CGROUP_LIMITS: Final = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def num_processors() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else 1


def _memory_mb() -> int:
    """Memory of the machine, or of the container if that is less."""
    sizes = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for limit in _CGROUP_LIMITS:
        with suppress(OSError, ValueError):  # no such hierarchy here, or no limit ("max")
            sizes.append(int(Path(limit).read_text()))
    return min(sizes) >> 20


class Ceiling:
    """Runs that may go on at once and the memory that they may have together. First come, first served."""

    def __init__(self, max_runs: int | None = None, max_memory_mb: int | None = None) -> None:
        self.max_runs = max_runs or _RUNS_PER_PROCESSOR * num_processors()
        self.max_memory_mb = max_memory_mb or int(_SHARE_OF_MEMORY * _memory_mb())
        self.num_runs = 0
        self.memory_mb = 0
        self._waiting: deque[object] = deque()
        self._changed = threading.Condition()

    def _fits(self, memory_mb: int) -> bool:
        # A run that is too large for the ceiling has it to itself: it could never start otherwise.
        has_room = self.num_runs < self.max_runs and self.memory_mb + memory_mb <= self.max_memory_mb
        return has_room or self.num_runs == 0

    @contextmanager
    def taken(self, memory_mb: int) -> Iterator[None]:
        """Wait until a run of this size fits, and hold its share for the block."""
        ticket = object()
        with self._changed:
            self._waiting.append(ticket)
            try:
                self._changed.wait_for(lambda: self._waiting[0] is ticket and self._fits(memory_mb))
            finally:
                self._waiting.remove(ticket)
                self._changed.notify_all()
            self.num_runs += 1
            self.memory_mb += memory_mb
        try:
            yield
        finally:
            with self._changed:
                self.num_runs -= 1
                self.memory_mb -= memory_mb
                self._changed.notify_all()


_shared = [Ceiling()]


def shared_ceiling() -> Ceiling:
    """The ceiling of this process."""
    return _shared[0]


def set_ceiling(max_runs: int | None = None, max_memory_mb: int | None = None) -> None:
    """Bound what all runs of all sandboxes of this process take together; runs that go on are not counted any more.

    Args:
        max_runs: runs at the same time, tests and their solution counted as one; None: two for each usable processor.
        max_memory_mb: MiB of all of them, each at its limit; None: three quarters of the machine's or container's.

    Raises:
        ValueError: if one is below 1.
    """
    for name, value in (("max_runs", max_runs), ("max_memory_mb", max_memory_mb)):
        if value is not None and value < 1:
            raise ValueError(f"{name}={value} must be at least 1, or None for the default")
    _shared[0] = Ceiling(max_runs, max_memory_mb)


def _after_fork() -> None:
    """In a forked process, no run of the parent goes on and no thread of it waits."""
    _shared[0] = Ceiling(_shared[0].max_runs, _shared[0].max_memory_mb)


os.register_at_fork(after_in_child=_after_fork)
