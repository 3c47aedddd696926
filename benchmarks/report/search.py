"""A search: the best of several entries of each algorithm, and whether it lies inside the ranges that were tried."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..comparison.summaries import RunSummary
from .comparison import Comparison
from .statistics import interval, mean
from .tables import NONE, Estimate, TableOfText

NATURAL_ENDS: Mapping[str, tuple[float, ...]] = {"trace": (0.0, 1.0), "discount": (0.0, 1.0)}
"""Ends beyond which a setting has no values."""


def search(comparison: Comparison) -> TableOfText:
    """Each algorithm's best entry by environment."""
    rows = []
    for environment in comparison.environments:
        entries: dict[str, list[str]] = {}
        for algorithm in comparison.algorithms:
            runs = comparison.runs(algorithm, environment)
            if runs:
                entries.setdefault(runs[0].experiment["algorithm"], []).append(algorithm)
        for name, tried in entries.items():
            configs = {each: _config(comparison.runs(each, environment)) for each in tried}
            scores = {each: comparison.scores(each, environment, "training") for each in tried}
            best = max(tried, key=lambda each: float(scores[each].mean()))
            found = interval(mean, scores[best][:, None], bounds=comparison.bounds(environment))
            varied = varied_settings(list(configs.values()))
            rows.append(
                [
                    f"{name}, {environment}",
                    str(len(tried)),
                    best,
                    Estimate(str(found), found) if len(scores[best]) > 1 else f"{found.value:.3f} (one run)",
                    ", ".join(f"{setting} {configs[best][setting]}" for setting in varied) or NONE,
                    ", ".join(at_an_end(configs[best], varied)) or "none",
                ]
            )
    return TableOfText(
        "Search: the best entry of each algorithm",
        "By the mean return over the last half of training [95 % interval over seeds, cut at the lowest and highest "
        "return that the environment declares]. Open ends: settings whose best "
        "value is the least or greatest that was tried, and that could go on; the search is over when there is none.",
        ["", "entries", "best", "return", "settings", "open ends"],
        rows,
    )


def varied_settings(configs: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Settings that differ between the configs, with the values that were tried."""
    names = dict.fromkeys(name for config in configs for name in config)
    values = {name: list(dict.fromkeys(str(config.get(name)) for config in configs)) for name in names}
    return {name: [config.get(name) for config in configs] for name in names if len(values[name]) > 1}


def at_an_end(chosen: Mapping[str, Any], varied: Mapping[str, Sequence[Any]]) -> list[str]:
    """Settings of numbers in which the chosen value is the least or the greatest tried, and not a natural end.

    None stands below all numbers: a layer that is not there.
    """
    found = []
    for name, values in varied.items():
        kinds = (int, float, type(None))
        if not all(isinstance(value, kinds) and not isinstance(value, bool) for value in values):
            continue
        known = sorted(-1.0 if value is None else float(value) for value in values)
        own = -1.0 if chosen[name] is None else float(chosen[name])
        if own in (known[0], known[-1]) and chosen[name] is not None and own not in NATURAL_ENDS.get(name, ()):
            found.append(f"{name} {'least' if own == known[0] else 'greatest'}")
    return found


def _config(runs: Sequence[RunSummary]) -> Mapping[str, Any]:
    config: Mapping[str, Any] = {**runs[0].experiment["config"]}
    return {name: value for name, value in config.items() if name != "seed"}
