"""CPU time of this process: rates of workloads that take turns, and seconds by phase of a program."""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

Result = TypeVar("Result")
Workload = Callable[[], int]  # does its work and returns the number of samples that count


def timed_rounds(
    workloads: Mapping[str, Callable[[], Result]], num_rounds: int
) -> dict[str, list[tuple[Result, float]]]:
    """Results of each workload and the CPU seconds that it took, round by round.

    The workloads take turns, so that other work on the machine slows all of them alike. A round before the first warms
    caches and is left out.
    """
    found: dict[str, list[tuple[Result, float]]] = {name: [] for name in workloads}
    for number in range(num_rounds + 1):
        for name, work in workloads.items():
            start = time.process_time()
            result = work()
            seconds = time.process_time() - start
            if number:
                found[name].append((result, seconds))
    return found


def cpu_rates(workloads: Mapping[str, Workload], num_rounds: int) -> dict[str, float]:
    """Samples per CPU second of each workload, the median over rounds."""
    return {
        name: statistics.median(count / seconds for count, seconds in rounds)
        for name, rounds in timed_rounds(workloads, num_rounds).items()
    }


class Stopwatch:
    """CPU seconds by phase. A phase inside another counts for itself alone, so that phases add up to the whole."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._inner = [0.0]  # for each open call, the seconds of the phases inside it

    def watch(self, phase: str, owner: Any, method: str) -> None:
        """Count every later call of the owner's method as this phase."""
        setattr(owner, method, partial(self.timed, phase, getattr(owner, method)))

    def timed(self, phase: str, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call, and count it as this phase."""
        self._inner.append(0.0)
        start = time.process_time()
        try:
            return call(*args, **kwargs)
        finally:
            passed = time.process_time() - start
            self.seconds[phase] += passed - self._inner.pop()
            self._inner[-1] += passed
