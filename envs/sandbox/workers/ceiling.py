"""Limit on the concurrent runs and memory of all sandboxes of this process."""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

_RUNS_PER_PROCESSOR: Final = 2
_MEMORY_FRACTION: Final = 0.75
_CGROUP_LIMITS: Final = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def num_processors() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else 1


def _memory_mb() -> int:
    """Return the memory of the machine or the memory limit of the container, in MiB."""
    sizes = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for limit in _CGROUP_LIMITS:
        with suppress(OSError, ValueError):  # no such cgroup version, or no limit ("max")
            sizes.append(int(Path(limit).read_text()))
    return min(sizes) >> 20


class Ceiling:
    """Limit on concurrent runs and on the sum of their memory limits. Runs start in the order of their requests."""

    def __init__(self, max_runs: int | None = None, max_memory_mb: int | None = None) -> None:
        self.max_runs = max_runs or _RUNS_PER_PROCESSOR * num_processors()
        self.max_memory_mb = max_memory_mb or int(_MEMORY_FRACTION * _memory_mb())
        self.num_runs = 0
        self.memory_mb = 0
        self._waiting: deque[object] = deque()
        self._changed = threading.Condition()

    def _fits(self, memory_mb: int) -> bool:
        # A run whose memory limit is too high runs alone; otherwise it could never start.
        has_room = self.num_runs < self.max_runs and self.memory_mb + memory_mb <= self.max_memory_mb
        return has_room or self.num_runs == 0

    @contextmanager
    def taken(self, memory_mb: int) -> Iterator[None]:
        """Wait until a run with this memory limit may start. The run counts as running until the `with` block ends."""
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
    return _shared[0]


def set_ceiling(max_runs: int | None = None, max_memory_mb: int | None = None) -> None:
    """Limit the concurrent runs of all sandboxes of this process. Runs that have already started do not count.

    Args:
        max_runs: maximum number of concurrent runs. A call of `run_tests` is one run. None: 2 per usable processor.
        max_memory_mb: maximum sum of the runs' memory limits in MiB. None: 75 % of the machine's or container's memory.

    Raises:
        ValueError: if a value is below 1.
    """
    for name, value in (("max_runs", max_runs), ("max_memory_mb", max_memory_mb)):
        if value is not None and value < 1:
            raise ValueError(f"{name}={value} must be at least 1, or None for the default")
    _shared[0] = Ceiling(max_runs, max_memory_mb)


# A forked process has no runs and no waiting threads.
os.register_at_fork(after_in_child=lambda: set_ceiling(_shared[0].max_runs, _shared[0].max_memory_mb))
