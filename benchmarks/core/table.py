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
    """Header and cells: a column per team and way of playing, a row per environment and one for the mean.

    The mean is over what a team has played, and says how many environments these are where some are missing.
    """
    columns = [(each, way) for each in submissions for way in ways_of(each)]
    header = ["environment", *(f"{each.team}, {way}" for each, way in columns)]
    cells = []
    for id in core_ids():
        cells.append([id, *(_cell(each, way, id) for each, way in columns)])
    return header, [*cells, ["mean", *(_mean(each, way) for each, way in columns)]]


def _cell(submission: Submission, way: str, id: str) -> str:
    if id in submission.unplayed:
        return "unplayed"
    returns = submission.returns.get(id, {}).get(way)
    return "-" if returns is None else str(score(id, returns))


def _mean(submission: Submission, way: str) -> str:
    played = {id: ways[way] for id, ways in submission.returns.items() if way in ways}
    missing = "" if len(played) == len(core_ids()) else f" ({len(played)} of {len(core_ids())})"
    return f"{suite_score(played)}{missing}"


def reasons(submissions: Sequence[Submission]) -> list[str]:
    """A line per environment that a team could not play."""
    return [f"{each.team} did not play {id}: {why}" for each in submissions for id, why in each.unplayed.items()]


def ways_of(submission: Submission) -> list[str]:
    """Ways in which a team has played."""
    return list(dict.fromkeys(way for ways in submission.returns.values() for way in ways))


def markdown(submissions: Sequence[Submission]) -> str:
    """The table as Markdown, with its title, and with what was not played and why."""
    header, cells = rows(submissions)
    lines = [f"# {TITLE}", "", markdown_table(header, cells)]
    if told := reasons(submissions):
        lines += ["", *(f"- {line}" for line in told)]
    return "\n".join(lines) + "\n"
