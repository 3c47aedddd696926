"""Submissions → one table: normalised scores by environment, and their mean, with intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ...algorithms.rollout.intervals import (
    Interval,
    bootstrap_indices,
    bootstrap_interval,
    percentile_interval,
    resampled,
)
from ..markdown import markdown_table
from .anchors import anchors
from .submission import Submission, core_ids

NUM_RESAMPLES = 5_000
TITLE = "Core suite: score on held-out seeds, 0 as random play and 1 as the reference player, mean [95 %]"


def score(id: str, returns: Sequence[float]) -> Interval:
    """Mean normalised score in one environment, with its 95 % bootstrap interval over episodes."""
    anchor, mean = anchors()[id], bootstrap_interval(returns)
    return Interval(anchor.score(mean.value), anchor.score(mean.low), anchor.score(mean.high))


def suite_score(returns: Mapping[str, Sequence[float]]) -> Interval:
    """Mean score over environments, each of the same weight, resampling episodes within each of them.

    Args:
        returns: by id, as many for each.
    """
    ids = sorted(returns)
    scores = np.array([[anchors()[id].score(value) for value in returns[id]] for id in ids]).T  # [R, K]
    indices = bootstrap_indices(scores.shape[0], scores.shape[1], NUM_RESAMPLES)
    return percentile_interval(float(scores.mean()), resampled(scores, indices).mean(axis=(1, 2)), 0.95)


def rows(submissions: Sequence[Submission]) -> tuple[list[str], list[list[str]]]:
    """Header and cells: a column per team and way of playing, a row per environment and one for the mean over all.

    The mean stands only where a team has played every environment.
    """
    columns = [(each, way) for each in submissions for way in ways_of(each)]
    header = ["environment", *(f"{each.team}, {way}" for each, way in columns)]
    cells = []
    for id in core_ids():
        found = [each.returns.get(id, {}).get(way) for each, way in columns]
        cells.append([id, *("-" if returns is None else str(score(id, returns)) for returns in found)])
    means = []
    for each, way in columns:
        played = {id: ways[way] for id, ways in each.returns.items() if way in ways}
        means.append(str(suite_score(played)) if set(played) == set(core_ids()) else "-")
    return header, [*cells, ["mean", *means]]


def ways_of(submission: Submission) -> list[str]:
    """Ways in which a team has played."""
    return list(dict.fromkeys(way for ways in submission.returns.values() for way in ways))


def markdown(submissions: Sequence[Submission]) -> str:
    """The table as Markdown, with its title."""
    header, cells = rows(submissions)
    return f"# {TITLE}\n\n{markdown_table(header, cells)}\n"
