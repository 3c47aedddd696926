"""Episodes recorded by a training run, replayed to obtain critic inputs, and divided into parts of the training.

Axes: N episodes, T turns, A agents.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from pettingzoo import ParallelEnv

from collm.agents.core import CriticInput
from collm.algorithms.config import ActorCriticConfig
from collm.algorithms.rollout.intervals import Floats
from collm.algorithms.runs.assembly.trust import load_experiment
from collm.algorithms.runs.loggers import read_lines
from collm.benchmarks.errors import UserError

NUM_PARTS = 6


@dataclass(frozen=True)
class Played:
    """Progress and histories before each turn of a replayed episode."""

    progress: Sequence[float]
    """[T] progress of the team."""
    joint: CriticInput
    """Joint histories."""
    own: Sequence[CriticInput]
    """[A] own histories of each agent."""


@dataclass(frozen=True)
class Recorded:
    """Episodes of a run, in order."""

    updates: np.ndarray[Any, np.dtype[np.int64]]
    """[N] number of each episode's update."""
    returns: Floats
    """[N] episode returns."""
    to_go: Floats
    """[N, T] returns to go."""
    values: Floats | None
    """[A, N, T] values that the critics predicted before they learned from the episode. None: no critics."""
    played: Sequence[Played]
    """[N] replayed episodes."""

    @property
    def progress(self) -> Floats:
        """[N, T] progress of the team before each turn."""
        return np.array([each.progress for each in self.played])


@dataclass(frozen=True)
class Part:
    """Part of the training of one run."""

    updates: tuple[int, int]
    """Numbers of the first and the last update."""
    returns: float
    """Mean return."""
    variance: float
    """Variance of the returns to go, summed over the turns."""
    explained: Sequence[float]
    """[T] explained variance of values predicted before the critic learned from the episodes, mean over agents."""
    attainable: Sequence[float]
    """[T] explained variance of the ideal table (`others_mean`)."""


def recorded(directory: Path, *, trust: bool = False) -> Recorded:
    """Read and replay the recorded episodes of a run.

    Args:
        directory: folder of a run whose environment reports the team's progress as `metric/quality`.
        trust: as in `load_experiment`.

    Raises:
        UserError: if the run has no episodes, or episodes without returns to go or with different numbers of turns.
    """
    rows = read_lines(directory / "episodes.jsonl")
    tracks = [[agent["turns"] for agent in row["agents"].values()] for row in rows]
    if not rows or len({len(track) for team in tracks for track in team}) != 1 or "return_to_go" not in tracks[0][0][0]:
        raise UserError(f"{directory} needs recorded episodes with returns to go and equal numbers of turns")
    experiment = load_experiment(directory, trust=trust)
    env, values = experiment.make_env(), None
    if isinstance(experiment.config, ActorCriticConfig):
        values = np.array([[[turn["value"] for turn in track] for track in team] for team in tracks]).swapaxes(0, 1)
    return Recorded(
        updates=np.array([row["update"] for row in rows]),
        returns=np.array([row["return"] for row in rows]),
        to_go=np.array([[turn["return_to_go"] for turn in team[0]] for team in tracks]),
        values=values,
        played=[played_again(env, row) for row in rows],
    )


def played_again(env: ParallelEnv[str, Any, Any], row: Mapping[str, Any], metric: str = "metric/quality") -> Played:
    """Replay the actions of a recorded episode."""
    observations, _ = env.reset(seed=row["seed"], options=row.get("options"))
    turns = {agent: record["turns"] for agent, record in row["agents"].items()}
    far, states, seen = [0.0], [env.state()], [observations]
    for turn in range(len(next(iter(turns.values()))) - 1):
        observations, _, _, _, infos = env.step({agent: own[turn]["wrote"] for agent, own in turns.items()})
        far.append(float(next(iter(infos.values()))[metric]))
        states.append(env.state())
        seen.append(observations)
    return Played(
        far, CriticInput(tuple(states)), [CriticInput(tuple(each[agent] for each in seen)) for agent in turns]
    )


def parts(
    record: Recorded, values: Floats, *, num_parts: int = NUM_PARTS, known: np.ndarray[Any, Any] | None = None
) -> list[Part]:
    """Divide a run's training into parts with equal numbers of updates, without parts whose returns are all equal.

    Args:
        record: the run's episodes.
        values: [A, N, T] or [1, N, T] values of the episodes.
        num_parts: number of parts.
        known: [N] True for episodes to include. None: all.
    """
    bounds = np.linspace(0, record.updates.max(), num_parts + 1).round().astype(int)
    progress = record.progress
    found = []
    for before, last in pairwise(bounds):
        kept = (record.updates > before) & (record.updates <= last)
        if known is not None:
            kept &= known
        to_go = record.to_go[kept]
        if len(to_go) < 2 or to_go.var(axis=0).min() <= 1e-12:
            continue
        found.append(
            Part(
                (int(before) + 1, int(last)),
                float(record.returns[kept].mean()),
                float(to_go.var(axis=0).sum()),
                explained(values[:, kept], to_go),
                explained(others_mean(progress[kept], to_go)[None], to_go),
            )
        )
    return found


def others_mean(progress: Floats, to_go: Floats) -> Floats:
    """Return [N, T]: the mean return to go of the other episodes with equal progress, or else of all other episodes.

    Args:
        progress: [N, T] progress of the team before each turn.
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
    """Return [T]: the explained variance of the returns to go at each turn, mean over agents.

    Args:
        values: [A, N, T].
        to_go: [N, T] returns to go, which must vary at every turn.
    """
    left = np.mean([(to_go - own).var(axis=0) for own in values], axis=0)
    return [float(each) for each in 1 - left / to_go.var(axis=0)]


def averaged(runs: Sequence[Sequence[Part]]) -> list[Part]:
    """Average the parts of several runs of one method on one task, weighted by the variance of their returns to go."""
    found = []
    for bounds in sorted({part.updates for run in runs for part in run}):
        same = [part for run in runs for part in run if part.updates == bounds]
        weights = np.array([part.variance for part in same])
        found.append(
            Part(
                bounds,
                float(np.mean([part.returns for part in same])),
                float(weights.sum()),
                np.average([part.explained for part in same], axis=0, weights=weights).tolist(),
                np.average([part.attainable for part in same], axis=0, weights=weights).tolist(),
            )
        )
    return found
