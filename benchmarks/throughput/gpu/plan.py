"""The plan: all parts in the order of their worth, and the run through what is left of them within some minutes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from . import decoding, laws, learning, ranks, team
from .results import Part, Results

PARTS: tuple[Part, ...] = (
    laws.part(),
    laws.bf16_part(),
    learning.head_part(),
    decoding.part(),
    learning.part(),
    team.memory_part(),
    team.part(),
    team.offload_part(),
    ranks.part(),
)


def run(results: Results, parts: Sequence[Part], minutes: float, say: Callable[[str], None]) -> tuple[int, list[str]]:
    """Make the measurements that are left, but begin none after the time is over.

    Returns:
        Number of measurements still to be made, and names of those that failed in this run.
    """
    end = time.monotonic() + 60 * minutes
    failed = []
    for part in parts:
        for what in results.left(part):
            if time.monotonic() >= end:
                continue
            row = results.measure(part, what)
            results.write_tables(PARTS)
            outcome = row.get("error") or row.get("outcome") or "done"
            say(f"{part.name}: {what}: {outcome}, {row['seconds']:.1f} s")
            if "error" in row:
                failed.append(f"{part.name}: {what}")
    return sum(len(results.left(part)) for part in parts), failed
