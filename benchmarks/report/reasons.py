"""Sentences about measurements that may explain the order of the methods: critics, advantages and training time."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from ...algorithms.rollout.intervals import Floats
from ..comparison.summaries import RunSummary
from .comparison import Comparison, paired
from .statistics import difference, mean

Scores = tuple[list[int], Floats]  # seeds, and their values per environment, [R, K]


class Measure(NamedTuple):
    name: str
    of: Callable[[RunSummary], float]
    claim: str  # fields: "more" or "less", and the value of the best method
    helpful: int  # sign of a difference that makes learning faster


MEASURES = (
    Measure(
        *("explained variance of the critics", lambda run: run.explained_variance),
        *("critic explains {} of the variance of the returns ({:.0%})", 1),
    ),
    Measure(
        *("variance of the advantages", lambda run: run.advantage_ratio),
        *("advantages vary {} ({:.0%} of the variance of the returns)", -1),
    ),
)


def reasons(comparison: Comparison, environments: Sequence[str], order: Sequence[str], *, is_tied: bool) -> str:
    """State significant differences between the best method and the next methods, and the time of a run.

    Args:
        order: methods, best first.
        is_tied: True if the best return does not differ significantly from all others.
    """
    best, *others = order[:4]  # more methods would make the sentence too long

    def read(measure: Callable[[RunSummary], float]) -> dict[str, Scores]:
        found = {name: comparison.seeds_and_scores(name, environments, measure) for name in (best, *others)}
        return {name: scores for name, scores in found.items() if scores[0]}

    claims: dict[bool, list[str]] = {True: [], False: []}  # keys: True if the difference makes learning faster
    alike = []
    for measure in MEASURES:
        found = read(measure.of)
        signs = {name: _sign(found[best], found[name]) for name in others if {best, name} <= found.keys()}
        if set(signs.values()) == {0}:
            alike.append(measure.name)
        for sign, word in ((1, "more"), (-1, "less")):
            listed = [f"{name}'s ({found[name][1].mean():.0%})" for name in signs if signs[name] == sign]
            if listed:
                claim = measure.claim.format(word, found[best][1].mean())
                claims[sign == measure.helpful].append(f"{best}'s {claim} than {' or '.join(listed)}")
    times = read(lambda run: float([math.nan, *run.curve("seconds/total")][-1]))
    why = _joined(claims[True], claims[False], alike, is_tied=is_tied)
    return " ".join(filter(None, [why, _time({name: float(values.mean()) for name, (_, values) in times.items()})]))


def _sign(best: Scores, other: Scores) -> int | None:
    """Sign of a significant difference, best minus other. 0: not significant. None: fewer than two common seeds."""
    first, second = paired(best, other)
    if len(first) < 2:
        return None
    found = difference(mean, first, second)
    return int(found.low > 0) - int(found.high < 0)


def _joined(helpful: Sequence[str], harmful: Sequence[str], alike: Sequence[str], *, is_tied: bool) -> str:
    if is_tied and (helpful or harmful):
        return f"Other measurements differ: {'; '.join([*helpful, *harmful])}."
    if helpful:
        return f"Possible reason: {'; '.join(helpful)}{''.join(f'; but {each}' for each in harmful)}."
    if harmful:
        return f"The measurements show no reason: {'; '.join(harmful)}."
    also = "also not significant" if is_tied else "not significant, so they show no reason"
    return f"Differences in the {' and the '.join(alike)} are {also}." if alike else ""


def _time(seconds: Mapping[str, float]) -> str:
    """Sentence with the mean time of a run per method. Empty for one method."""
    if len(seconds) < 2:
        return ""
    if max(seconds.values()) <= 1.1 * min(seconds.values()):
        return f"A run took about {max(seconds.values()):,.0f} s with each method."
    return f"A run took {', '.join(f'{value:,.0f} s with {name}' for name, value in seconds.items())}."
