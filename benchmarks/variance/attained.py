"""What the critics of trained runs explained while they learned, beside what they could have: from the runs' records.

Axes: N episodes, T turns, A agents. The attainable is that of the ideal table (`table_values`): the mean return to go
of the other episodes of the same part of training that had come as far at the same turn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from pettingzoo import ParallelEnv

from ...algorithms.rollout.intervals import Floats
from ...algorithms.runs.experiment import load_experiment
from ...algorithms.runs.loggers import read_lines
from ..errors import UserError
from ..markdown import markdown_table

NUM_PARTS = 6


@dataclass(frozen=True)
class Part:
    """A part of the training of one run."""

    updates: tuple[int, int]
    """First and last."""
    returns: float
    """Mean return."""
    variance: float
    """Variance of the returns to go, summed over the turns."""
    explained: Sequence[float]
    """[T] explained variance of the critics' values before they learned from the episodes, mean over agents."""
    attainable: Sequence[float]
    """[T] explained variance of the ideal table, which leaves out the episode itself."""


def attained(directory: Path, *, num_parts: int = NUM_PARTS, trust: bool = False) -> list[Part]:
    """Parts of a run's training, without those whose returns were all equal.

    Args:
        directory: a finished run whose environment tells the team's progress as `metric/quality`.
        num_parts: parts of as many updates each.
        trust: import code that the run's settings name.

    Raises:
        UserError: if its episodes have no values, or differ in their turns.
    """
    rows = read_lines(directory / "episodes.jsonl")
    tracks = [[agent["turns"] for agent in row["agents"].values()] for row in rows]
    if not rows or len({len(track) for team in tracks for track in team}) != 1 or "value" not in tracks[0][0][0]:
        raise UserError(f"{directory} has no episodes of one number of turns, with the values that critics gave them")
    values = np.array([[[turn["value"] for turn in track] for track in team] for team in tracks]).swapaxes(0, 1)
    to_go = np.array([[turn["return_to_go"] for turn in team[0]] for team in tracks])
    env = load_experiment(directory, trust=trust).make_env()
    progress = np.array([progress_again(env, row) for row in rows])
    updates = np.array([row["update"] for row in rows])
    bounds = np.linspace(0, updates.max(), num_parts + 1).round().astype(int)
    found = []
    for before, last in pairwise(bounds):
        kept = (updates > before) & (updates <= last)
        spread = to_go[kept].var(axis=0)
        if spread.min() <= 1e-12:
            continue
        found.append(
            Part(
                (int(before) + 1, int(last)),
                float(np.mean([row["return"] for row, own in zip(rows, kept, strict=True) if own])),
                float(spread.sum()),
                explained(values[:, kept], to_go[kept]),
                explained(others_mean(progress[kept], to_go[kept])[None], to_go[kept]),
            )
        )
    return found


def progress_again(
    env: ParallelEnv[str, Any, Any], row: Mapping[str, Any], metric: str = "metric/quality"
) -> list[float]:
    """How far the team had come before each turn of a recorded episode, by playing its actions again."""
    env.reset(seed=row["seed"])
    turns = {agent: record["turns"] for agent, record in row["agents"].items()}
    found = [0.0]
    for turn in range(len(next(iter(turns.values()))) - 1):
        infos = env.step({agent: own[turn]["wrote"] for agent, own in turns.items()})[4]
        found.append(float(next(iter(infos.values()))[metric]))
    return found


def others_mean(progress: Floats, to_go: Floats) -> Floats:
    """[N, T] mean return to go of the other episodes that had come as far; of all others where there are none.

    Args:
        progress: [N, T] before each turn.
        to_go: [N, T].
    """
    found = np.empty_like(to_go)
    for turn in range(to_go.shape[1]):
        far, returns = np.round(progress[:, turn], 9), to_go[:, turn]
        everyone = (returns.sum() - returns) / (len(returns) - 1)
        for each in np.unique(far):
            own = far == each
            count = int(own.sum())
            found[own, turn] = (returns[own].sum() - returns[own]) / (count - 1) if count > 1 else everyone[own]
    return found


def explained(values: Floats, to_go: Floats) -> list[float]:
    """[T] explained variance of the returns to go, mean over agents.

    Args:
        values: [A, N, T].
        to_go: [N, T], which vary at every turn.
    """
    left = np.mean([(to_go - own).var(axis=0) for own in values], axis=0)
    return [float(each) for each in 1 - left / to_go.var(axis=0)]


def attained_page(runs: Sequence[Sequence[Part]]) -> str:
    """The table of several runs of one method on one task, as Markdown; parts weigh as the variance of returns."""
    rows = []
    for bounds in sorted({part.updates for run in runs for part in run}):
        parts = [part for run in runs for part in run if part.updates == bounds]
        weights = np.array([part.variance for part in parts])
        critic, ideal = (
            np.average([getattr(part, name) for part in parts], axis=0, weights=weights)
            for name in ("explained", "attainable")
        )
        told = [" ".join(f"{value:.2f}" for value in of_turns) for of_turns in (critic, ideal)]
        rows.append(
            [
                f"{bounds[0]} to {bounds[1]}",
                f"{np.mean([part.returns for part in parts]):.2f}",
                f"{critic.mean():.2f}",
                f"{ideal.mean():.2f}",
                *told,
            ]
        )
    header = ["updates", "return", "critics", "attainable", "critics, by turn", "attainable, by turn"]
    return (
        "# Explained variance while training\n\n"
        f"{len(runs)} runs. Explained variance of the return to go by the critics' values, as predicted before "
        "learning from the episodes, and by a table of how far the team had come (the mean return of other episodes "
        "that had come as far at that turn): mean of the turns, and turn by turn. Parts of equal returns are "
        "left out.\n\n"
        f"{markdown_table(header, rows)}\n"
    )
