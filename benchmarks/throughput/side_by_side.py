"""Wall time of a joint turn and an update: two models one after the other on one core and on all, and side by side."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

import torch

from ...algorithms.rollout.plays import Plan
from ...algorithms.rollout.side_by_side import num_cores
from ..markdown import markdown_table
from .synthetic import synthetic_trainer, threads_kept
from .timing import look

NUM_ENVS = 32
NUM_TURNS = 3


@dataclass(frozen=True, slots=True)
class Rates:
    """What two models do in a second of wall time, round by round."""

    name: str
    turns: Sequence[float]
    """Joint turns per second of collecting."""
    updates: Sequence[float]
    """Updates per second, collecting included."""


@threads_kept()
def measure(repeats: int = 5, *, num_envs: int = NUM_ENVS, max_new_tokens: int = 64) -> list[Rates]:
    """All three, taking turns; a round before the first warms up."""
    ways = {
        "one after the other, one core": (False, 1),
        "one after the other, all cores in each pass": (False, num_cores()),
        "side by side, cores divided": (True, num_cores()),
    }
    trainers = {
        name: synthetic_trainer(
            "magrpo",
            num_envs,
            num_turns=NUM_TURNS,
            max_new_tokens=max_new_tokens,
            num_generations=4,
            side_by_side=is_on,
        )
        for name, (is_on, _) in ways.items()
    }
    turns: dict[str, list[float]] = {name: [] for name in trainers}
    updates: dict[str, list[float]] = {name: [] for name in trainers}
    seeds = count(step=num_envs)
    for number in range(repeats + 1):
        if number:
            look()
        first = next(seeds)
        for name, trainer in trainers.items():
            torch.set_num_threads(ways[name][1])
            start = time.perf_counter()
            episodes = trainer.collector.collect([Plan(first + i) for i in range(num_envs)])
            collected = time.perf_counter()
            trainer.step()
            end = time.perf_counter()
            if number:
                turns[name].append(sum(episode.num_turns for episode in episodes) / (collected - start))
                updates[name].append(1 / (end - collected))
    look()
    return [Rates(name, turns[name], updates[name]) for name in trainers]


def table(rows: Sequence[Rates], load: tuple[float, float]) -> str:
    """Least, median and largest rates as Markdown.

    Args:
        load: the machine's load before and after, in processes that run or wait.
    """
    cells = [(row.name, _spread(row.turns), _spread(row.updates)) for row in rows]
    for other in rows[:-1]:
        turns = statistics.median(rows[-1].turns) / statistics.median(other.turns)
        updates = statistics.median(rows[-1].updates) / statistics.median(other.updates)
        cells.append((f"medians of the last, beside {other.name}", f"{turns:.2f}x", f"{updates:.2f}x"))
    found = markdown_table(("", "joint turns", "updates"), cells)
    return (
        f"Two models of 2 million weights, {NUM_TURNS} turns, per second of wall time (least, median, largest), on "
        f"{os.cpu_count()} cores; load {load[0]:.1f} before, {load[1]:.1f} after:\n\n{found}"
    )


def load() -> float:
    """Processes that ran or waited for a core in the last minute, on average; 0 where the system does not tell."""
    try:
        return os.getloadavg()[0]
    except (AttributeError, OSError):  # Windows has none
        return 0.0


def _spread(rates: Sequence[float]) -> str:
    return f"{min(rates):.2f}, {statistics.median(rates):.2f}, {max(rates):.2f}"
