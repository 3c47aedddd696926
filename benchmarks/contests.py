"""Contestants taking turns: medians of CPU seconds that other work on the machine moves together."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping

Contestant = Callable[[], int]  # does its work and returns the number of samples that count


def race(contestants: Mapping[str, Contestant], repeats: int) -> dict[str, float]:
    """Median samples per CPU second of this process, of each contestant, after one round to warm up."""
    rates: dict[str, list[float]] = {name: [] for name in contestants}
    for repeat in range(repeats + 1):
        for name, run in contestants.items():
            start = time.process_time()
            count = run()
            if repeat:
                rates[name].append(count / (time.process_time() - start))
    return {name: statistics.median(values) for name, values in rates.items()}
