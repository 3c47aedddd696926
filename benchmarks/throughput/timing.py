"""Timing of workloads that are compared in alternating rounds, timing of phases, and the load of other processes."""

from __future__ import annotations

import math
import os
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import torch

Result = TypeVar("Result")
Workload = Callable[[], int]  # returns its number of samples, such as tokens
Clock = Callable[[], float]  # seconds

MAX_IDLE_CORES = 0.2  # on an idle machine, other processes use at most this number of cores
SAMPLE_S = 0.2


@dataclass(frozen=True, slots=True)
class Spread:
    minimum: float
    median: float
    maximum: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(min(values), statistics.median(values), max(values))

    def times(self, factor: float) -> Spread:
        return Spread(self.minimum * factor, self.median * factor, self.maximum * factor)

    def shown(self, pattern: str = ",.0f") -> str:
        """Format as median (minimum-maximum)."""
        return f"{self.median:{pattern}} ({self.minimum:{pattern}}-{self.maximum:{pattern}})"


def other_load() -> float:
    """Number of cores that other processes use, measured for `SAMPLE_S` seconds. nan: unknown on this system."""
    busy, own = _busy_seconds(), time.process_time()
    if busy is None:
        return float("nan")
    start = time.perf_counter()
    time.sleep(SAMPLE_S)
    after = _busy_seconds()
    assert after is not None
    passed = time.perf_counter() - start
    return max(0.0, (after - busy - (time.process_time() - own)) / passed)


def _busy_seconds() -> float | None:
    """Busy core seconds of the machine since its start. None: unknown on this system."""
    try:
        with open("/proc/stat") as file:
            user, nice, system, _, _, irq, softirq, *_ = map(int, file.readline().split()[1:])
    except FileNotFoundError:
        return None
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


class LoadWatch:
    """Load of other processes, sampled before each round and after the last round."""

    def __init__(self, load: Callable[[], float] = other_load) -> None:
        self._load = load
        self.loads: list[float] = []

    def look(self) -> None:
        self.loads.append(self._load())

    @property
    def is_idle(self) -> bool | None:
        """True if the machine was idle in all samples. None: unknown."""
        if not self.loads or any(math.isnan(load) for load in self.loads):
            return None
        return max(self.loads) <= MAX_IDLE_CORES

    def verdict(self) -> str:
        if self.is_idle is None:
            return "Load of other processes: not known."
        found = f"{Spread.of(self.loads).shown('.2f')} cores at {len(self.loads)} looks, before and after each round"
        if self.is_idle:
            return f"Machine idle: other processes used {found}."
        return f"**Machine busy: other processes used {found}. Not for publication.**"


_watch: ContextVar[LoadWatch | None] = ContextVar("watch", default=None)


@contextmanager
def watching(watch: LoadWatch) -> Iterator[LoadWatch]:
    """Context manager: while it is open, each call of `look` adds the machine's load to `watch`."""
    token = _watch.set(watch)
    try:
        yield watch
    finally:
        _watch.reset(token)


def clock_of(device: str) -> Clock | None:
    """Return a clock in seconds that first waits for the GPU. None for a CPU: `timed_rounds` uses CPU seconds."""
    if device == "cpu":
        return None

    def seconds() -> float:
        torch.cuda.synchronize(device)
        return time.perf_counter()

    return seconds


def unit_of(device: str) -> str:
    return "CPU second" if device == "cpu" else "second"


def look() -> None:
    """Sample the load of other processes, inside of a `watching` block."""
    watch = _watch.get()
    if watch is not None:
        watch.look()


def timed_rounds(
    workloads: Mapping[str, Callable[[], Result]], num_rounds: int, *, clock: Clock | None = None
) -> dict[str, list[tuple[Result, float]]]:
    """Run workloads in rounds, after one warm-up round. Return the results and the seconds of each workload.

    The workloads alternate, so that other processes slow all of them equally. `clock` None: CPU seconds of the process.
    """
    now = time.process_time if clock is None else clock
    found: dict[str, list[tuple[Result, float]]] = {name: [] for name in workloads}
    for number in range(num_rounds + 1):
        if number:
            look()
        for name, work in workloads.items():
            start = now()
            result = work()
            seconds = now() - start
            if number:
                found[name].append((result, seconds))
    look()
    return found


def rates(workloads: Mapping[str, Workload], num_rounds: int, *, clock: Clock | None = None) -> dict[str, list[float]]:
    """Samples per second of each workload in each round, measured by `timed_rounds`."""
    return {
        name: [count / seconds for count, seconds in rounds]
        for name, rounds in timed_rounds(workloads, num_rounds, clock=clock).items()
    }


def ratio_of(rates: Sequence[float], reference: Sequence[float]) -> Spread:
    return Spread.of([ours / theirs for ours, theirs in zip(rates, reference, strict=True)])


class Stopwatch:
    """Seconds of each phase. An outer phase excludes nested phases. `clock` None: CPU seconds of this process."""

    def __init__(self, clock: Clock | None = None) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._clock = clock
        self._inner = [0.0]  # seconds of nested phases, for each call that has not returned

    def watch(self, phase: str, owner: Any, method: str) -> None:
        """Replace a method of `owner`, so that all its calls are timed as this phase."""
        setattr(owner, method, partial(self.timed, phase, getattr(owner, method)))

    def timed(self, phase: str, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        now = time.process_time if self._clock is None else self._clock
        self._inner.append(0.0)
        start = now()
        try:
            return call(*args, **kwargs)
        finally:
            passed = now() - start
            self.seconds[phase] += passed - self._inner.pop()
            self._inner[-1] += passed
