"""Timing of alternating workloads, of the load of other processes, and of the phases of a program."""

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

MAX_IDLE_CORES = 0.2
"""Maximum number of cores that other processes use on an idle machine."""
SAMPLE_S = 0.2


@dataclass(frozen=True, slots=True)
class Spread:
    """Minimum, median and maximum of a measurement over its rounds."""

    minimum: float
    median: float
    maximum: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(min(values), statistics.median(values), max(values))

    def times(self, factor: float) -> Spread:
        """Multiply by a factor above 0."""
        return Spread(self.minimum * factor, self.median * factor, self.maximum * factor)

    def shown(self, pattern: str = ",.0f") -> str:
        """Format the median, with minimum to maximum in brackets."""
        return f"{self.median:{pattern}} ({self.minimum:{pattern}}-{self.maximum:{pattern}})"


def other_load() -> float:
    """Number of cores that other processes use, measured for `SAMPLE_S` seconds. nan: the system does not report it."""
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
    """Busy core seconds of the machine since its start."""
    try:
        with open("/proc/stat") as file:
            user, nice, system, _, _, irq, softirq, *_ = map(int, file.readline().split()[1:])
    except FileNotFoundError:
        return None
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


class LoadWatch:
    """Load of other processes, sampled before each round and after the last one.

    Args:
        load: returns the number of cores that other processes use.
    """

    def __init__(self, load: Callable[[], float] = other_load) -> None:
        self._load = load
        self.loads: list[float] = []

    def look(self) -> None:
        self.loads.append(self._load())

    @property
    def is_idle(self) -> bool | None:
        """True if the machine was idle in all samples. None: the loads are unknown."""
        if not self.loads or any(math.isnan(load) for load in self.loads):
            return None
        return max(self.loads) <= MAX_IDLE_CORES

    def verdict(self) -> str:
        """Line about the load, to print below a table."""
        if self.is_idle is None:
            return "Load of other processes: not known."
        found = f"{Spread.of(self.loads).shown('.2f')} cores at {len(self.loads)} looks, before and after each round"
        if self.is_idle:
            return f"Machine idle: other processes used {found}."
        return f"**Machine busy: other processes used {found}. Not for publication.**"


_watch: ContextVar[LoadWatch | None] = ContextVar("watch", default=None)


@contextmanager
def watching(watch: LoadWatch) -> Iterator[LoadWatch]:
    """Sample the load of all rounds inside the block."""
    token = _watch.set(watch)
    try:
        yield watch
    finally:
        _watch.reset(token)


def clock_of(device: str) -> Clock | None:
    """Clock of wall seconds that synchronizes with the GPU first. None: a CPU, where CPU seconds are used."""
    if device == "cpu":
        return None

    def seconds() -> float:
        torch.cuda.synchronize(device)
        return time.perf_counter()

    return seconds


def unit_of(device: str) -> str:
    """Unit of the clock that `clock_of` returns."""
    return "CPU second" if device == "cpu" else "second"


def look() -> None:
    """Sample the load of other processes, if a `LoadWatch` is active."""
    watch = _watch.get()
    if watch is not None:
        watch.look()


def timed_rounds(
    workloads: Mapping[str, Callable[[], Result]], num_rounds: int, *, clock: Clock | None = None
) -> dict[str, list[tuple[Result, float]]]:
    """Run the workloads in rounds, and return results and seconds of each workload and round.

    The workloads alternate, so that other processes slow all of them equally. The warm-up round is excluded.

    Args:
        clock: function that returns seconds. None: CPU seconds of this process.
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
    """Samples per second of each workload and round. See `timed_rounds`."""
    return {
        name: [count / seconds for count, seconds in rounds]
        for name, rounds in timed_rounds(workloads, num_rounds, clock=clock).items()
    }


def ratio_of(rates: Sequence[float], reference: Sequence[float]) -> Spread:
    """Ratio to the reference in each round."""
    return Spread.of([ours / theirs for ours, theirs in zip(rates, reference, strict=True)])


class Stopwatch:
    """Measures the seconds of each phase. An outer phase excludes nested phases, so the phases add up to the total.

    Args:
        clock: function that returns seconds. None: CPU seconds of this process.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._clock = clock
        self._inner = [0.0]  # seconds of nested phases, for each call that has not returned

    def watch(self, phase: str, owner: Any, method: str) -> None:
        """Measure all later calls of a method of `owner` as this phase."""
        setattr(owner, method, partial(self.timed, phase, getattr(owner, method)))

    def timed(self, phase: str, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a function and add its seconds to this phase."""
        now = time.process_time if self._clock is None else self._clock
        self._inner.append(0.0)
        start = now()
        try:
            return call(*args, **kwargs)
        finally:
            passed = now() - start
            self.seconds[phase] += passed - self._inner.pop()
            self._inner[-1] += passed
