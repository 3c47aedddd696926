"""Tables of a comparison for the HTML page, Markdown files and the terminal."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ...algorithms.rollout.intervals import Interval
from ...algorithms.runs.evaluation import agents_in
from ..markdown import markdown_table
from .comparison import Comparison, paired
from .statistics import difference, improvement, interquartile_mean, interval, mean, median, median_cost

NONE = "-"
SHARE = "evaluation/sampled/metric/share/"


class Estimate(str):
    """Table cell: the text of an estimate, and its interval."""

    interval: Interval

    def __new__(cls, text: str, interval: Interval) -> Estimate:
        cell = super().__new__(cls, text)
        cell.interval = interval
        return cell

    @property
    def is_certain(self) -> bool:
        """True if there is an interval, which needs at least two runs."""
        return bool(np.isfinite(self.interval.value)) and not np.isnan(self.interval.low)

    def excludes(self, value: float) -> bool:
        """True if the interval, rounded to three digits as in the text, does not contain the value."""
        return self.is_certain and not round(self.interval.low, 3) <= value <= round(self.interval.high, 3)


@dataclass(frozen=True)
class TableOfText:
    """Table of texts, with a title and a note that explains the numbers."""

    title: str
    note: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    best: Literal["highest", "lowest"] | None = None  # estimate that is marked as the best of a column
    even: float | None = None  # value at which two compared methods are equally good

    def marks(self) -> dict[tuple[int, int], str]:
        """Labels of cells (row, column): "best", "near" (overlaps the best interval), "above" or "below" `even`."""
        found = {}
        for column in range(1, len(self.header)):
            cells = {row: cells[column] for row, cells in enumerate(self.rows)}
            known = {row: cell for row, cell in cells.items() if isinstance(cell, Estimate)}
            if self.even is not None:
                for row, cell in known.items():
                    if cell.excludes(self.even):
                        found[row, column] = "above" if cell.interval.value > self.even else "below"
            elif self.best is not None and len(known) > 1:
                found |= {(row, column): mark for row, mark in _against_best(known, self.best).items()}
        return found

    def markdown(self) -> str:
        return "\n".join([f"### {self.title}", "", self.note, "", markdown_table(self.header, self.rows), ""])


def _against_best(cells: Mapping[int, Estimate], best: str) -> dict[int, str]:
    sign = 1 if best == "highest" else -1
    top = max(sign * cell.interval.value for cell in cells.values())
    if not np.isfinite(top) or len({cell.interval.value for cell in cells.values()}) == 1:
        return {}
    leaders = [cell for cell in cells.values() if sign * cell.interval.value == top]
    marks = {}
    for row, cell in cells.items():
        if sign * cell.interval.value == top:
            marks[row] = "best"
        elif cell.is_certain and all(
            leader.is_certain
            and cell.interval.low <= leader.interval.high
            and leader.interval.low <= cell.interval.high
            for leader in leaders
        ):
            marks[row] = "near"
    return marks


def _rows(comparison: Comparison, cell: Callable[[str, str], str], against: str = "") -> list[list[str]]:
    """One row per algorithm, with a cell per environment. With `against`, the reference has no row."""
    names = [each for each in comparison.algorithms if not against or each != comparison.reference()]
    return [[f"{against}{name}", *(cell(name, each) for each in comparison.environments)] for name in names]


def tables(comparison: Comparison) -> list[TableOfText]:
    found = [
        final_scores(comparison, "sampled"),
        final_scores(comparison, "greedy"),
        final_scores(comparison, "training"),
        aggregates(comparison),
        differences(comparison, "sampled"),
        differences(comparison, "training"),
        improvements(comparison),
        collapses(comparison),
        learning_signals(comparison),
        shares(comparison),
        agent_returns(comparison),
        wasted(comparison),
        sample_efficiency(comparison, "environment_steps"),
        sample_efficiency(comparison, "sampled_tokens"),
    ]
    return [table for table in found if table.rows]


def final_scores(comparison: Comparison, how: str) -> TableOfText:
    def cell(algorithm: str, environment: str) -> str:
        scores, bounds = comparison.scores(algorithm, environment, how), comparison.bounds(environment)
        return _with_runs(interval(mean, scores[:, None], bounds=bounds), len(scores)) if len(scores) else NONE

    starts = [comparison.start(environment, how) for environment in comparison.environments]
    before = ["before training", *(NONE if start is None else f"{start:.3f}" for start in starts)]
    is_held_out = how != "training"
    return TableOfText(
        f"Final return, {how} play" if is_held_out else "Return over the last half of training",
        f"Mean {'held-out team return' if is_held_out else 'team return of these updates'} over runs "
        "[95 % interval]. Bootstrap over seeds, widened for few seeds.",
        ["", *comparison.environments],
        [before, *_rows(comparison, cell)],
        best="highest",
    )


def aggregates(comparison: Comparison) -> TableOfText:
    rows = []
    if len(comparison.environments) > 1 and comparison.has_one_scale:
        for algorithm in comparison.algorithms:
            matrix = comparison.matrix(algorithm)
            if matrix is not None:
                bounds = comparison.bounds(*comparison.environments)
                cells = [
                    _with_runs(interval(estimator, matrix, bounds=bounds), len(matrix))
                    for estimator in (mean, median, interquartile_mean)
                ]
                rows.append([algorithm, *cells, str(len(matrix))])
    return TableOfText(
        "Over all environments",
        "Returns are between 0 and 1 and are not normalized. In brackets: 95 % interval of the stratified bootstrap.",
        ["", "mean", "median", "interquartile mean", "seeds"],
        rows,
        best="highest",
    )


def differences(comparison: Comparison, how: str) -> TableOfText:
    """Table of the return of the reference minus the return of each other method, paired by seed."""
    reference = comparison.reference()

    def cell(algorithm: str, environment: str) -> str:
        names = (reference, algorithm)
        first, second = paired(*(comparison.seeds_and_scores(name, [environment], how) for name in names))
        bounds = comparison.bounds(environment)
        if not len(first):
            return NONE
        found = _with_runs(difference(mean, first, second, bounds=bounds), len(first))
        return Estimate(f"{found} *", found.interval) if found.excludes(0) else found

    return TableOfText(
        "Paired differences" if how != "training" else "Paired differences over the last half of training",
        f"{'Final return' if how != 'training' else 'Return'} of {reference} minus that of the other method with the "
        f"same seed, mean over seeds [95 %]. Above 0, {reference} is better. *: the interval excludes 0. The intervals "
        "are not corrected for their number.",
        ["", *comparison.environments],
        _rows(comparison, cell, f"{reference} - "),
        even=0,
    )


def improvements(comparison: Comparison) -> TableOfText:
    reference = comparison.reference()

    def cell(algorithm: str, environment: str) -> str:
        first, second = (comparison.scores(name, environment)[:, None] for name in (reference, algorithm))
        fewest = min(len(first), len(second))
        return _with_runs(improvement(first, second), fewest) if fewest else NONE

    return TableOfText(
        "Probability of improvement",
        f"Probability that a run of {reference} has a higher final return than a run of the other method [95 %]. Equal "
        "returns count half.",
        ["", *comparison.environments],
        _rows(comparison, cell, f"{reference} > "),
        even=0.5,
    )


def collapses(comparison: Comparison) -> TableOfText:
    rows = []
    for algorithm in comparison.algorithms:
        runs = [comparison.runs(algorithm, environment) for environment in comparison.environments]
        cells = [f"{sum(run.has_collapsed for run in each)} of {len(each)}" if each else NONE for each in runs]
        every = [run.has_collapsed for each in runs for run in each]
        rows.append([algorithm, *cells, f"{sum(every) / len(every):.0%}"])
    is_shown = comparison.has_one_scale and any(each.has_collapsed for each in comparison.finished)
    return TableOfText(
        "Collapsed runs",
        "Runs whose final held-out return is below half of their best mean return over a fifth of the training.",
        ["", *comparison.environments, "share"],
        rows if is_shown else [],
    )


def learning_signals(comparison: Comparison) -> TableOfText:
    def cell(values: Sequence[float], bounds: tuple[float, float]) -> str:
        known = np.array([[value] for value in values if np.isfinite(value)])
        return _with_runs(interval(mean, known, bounds=bounds), len(known)) if len(known) else NONE

    rows = []
    for environment in comparison.environments:
        for algorithm in comparison.algorithms:
            runs = [run for run in comparison.runs(algorithm, environment) if run.diagnostics]
            critic = cell([run.explained_variance for run in runs], (-np.inf, 1))
            advantages = cell([run.advantage_ratio for run in runs], (0, np.inf))
            rows += [[f"{algorithm}, {environment}", critic, advantages]] if runs else []
    return TableOfText(
        "Critics and advantages",
        "Last third of training, all turns, mean over runs [95 % interval]. Explained variance: part of the variance "
        "of the returns that the critic predicts. Advantages: mean square before normalization, divided by the "
        "variance of the returns; smaller values are less noise in the policy gradient.",
        ["", "explained variance", "advantages"],
        rows,
    )


def shares(comparison: Comparison) -> TableOfText:
    """Table of the agents' fractions of the return, for environments in which they are not equal in all runs."""

    def found(algorithm: str, environment: str) -> dict[str, list[float]]:
        ends = [run.evaluations[-1] for run in comparison.runs(algorithm, environment) if run.evaluations]
        names = dict.fromkeys(name for end in ends for name in end if name.startswith(SHARE))
        return {name.removeprefix(SHARE): [end[name] for end in ends if name in end] for name in names}

    def varies(environment: str) -> bool:
        every = [found(algorithm, environment).values() for algorithm in comparison.algorithms]
        values = [value for agents in every for values in agents for value in values]
        return bool(values) and max(values) - min(values) > 1e-6

    def cell(algorithm: str, environment: str) -> str:
        means = found(algorithm, environment)
        return ", ".join(f"{agent} {np.mean(values):.2f}" for agent, values in means.items()) or NONE

    names = [name for name in comparison.environments if varies(name)]
    return TableOfText(
        "Who did the work",
        "Fraction of each agent in the final held-out return, sampled play, mean over runs. An agent's loss is the "
        "loss of return if its replies are replaced by empty ones. Its fraction is this loss divided by the sum of all "
        "losses. 1 and 0: one agent does all the work. 0.5 and 0.5: no agent gets a return without the other. Episodes "
        "without a loss are excluded, and environments in which all fractions are equal.",
        ["", *names],
        [[name, *(cell(name, each) for each in names)] for name in comparison.algorithms if names],
    )


def agent_returns(comparison: Comparison) -> TableOfText:
    """Table of each agent's return, for environments whose agents do not have common interests."""

    def cell(algorithm: str, environment: str) -> str:
        ends = [run.evaluations[-1] for run in comparison.runs(algorithm, environment) if run.evaluations]
        start = "evaluation/sampled/"
        names = dict.fromkeys(f"{start}return/{agent}" for end in ends for agent in agents_in(end))
        names |= dict.fromkeys(name for end in ends for name in end if name.startswith(f"{start}welfare/"))
        values = {name: [end[name] for end in ends if name in end] for name in names}
        return ", ".join(f"{name.split('/', 3)[3]} {np.mean(found):.3f}" for name, found in values.items()) or NONE

    return TableOfText(
        "Returns of agents",
        "Final held-out return of each agent in environments without common interests, sampled play, mean over runs. "
        "With mixed interests, also the sum, minimum, Nash product and Gini coefficient of the agents' returns.",
        ["", *comparison.environments],
        _unless_empty(_rows(comparison, cell)),
    )


def _unless_empty(rows: list[list[str]]) -> list[list[str]]:
    return rows if any(set(row[1:]) != {NONE} for row in rows) else []


def wasted(comparison: Comparison) -> TableOfText:
    def cell(algorithm: str, environment: str) -> str:
        runs = [run for run in comparison.runs(algorithm, environment) if run.evaluations]
        found = []
        for kind in ("own_repeats", "collisions"):
            name = f"evaluation/sampled/metric/{kind}"
            both = [(run.first_evaluation, run.evaluations[-1]) for run in runs]
            ends = [(old[name], new[name]) for old, new in both if old and name in old and name in new]
            if ends:
                before, after = np.mean(ends, axis=0)
                found.append(f"{kind.replace('_', ' ')} {before:.2f} → {after:.2f}")
        return ", ".join(found) or NONE

    return TableOfText(
        "Wasted moves",
        "Moves per turn of the whole team on parts that were already taken, before → after training. Sampled play on "
        "held-out tasks, mean over runs. Own repeats: the same builder named the part in an earlier turn; memory "
        "avoids them. Collisions: only other builders named the part; dividing the work avoids them.",
        ["", *comparison.environments],
        _unless_empty(_rows(comparison, cell)),
    )


def sample_efficiency(comparison: Comparison, cost: str) -> TableOfText:
    thresholds = comparison.thresholds
    if cost == "sampled_tokens":
        thresholds = {name: value for name, value in thresholds.items() if comparison.writes_text(name)}

    def cell(algorithm: str, environment: str) -> str:
        costs = comparison.costs_to_reach(algorithm, environment, cost)
        if not costs:
            return NONE
        found = median_cost(costs)
        return Estimate(str(found), Interval(found.median, found.low, found.high))

    rows = [[name, *(cell(name, each) for each in thresholds)] for name in comparison.algorithms if thresholds]
    unit = {"environment_steps": "environment steps", "sampled_tokens": "generated tokens"}[cost]
    return TableOfText(
        f"{unit.capitalize()} to a threshold",
        f"Median over runs of the {unit} until the mean training return of five updates reached the threshold [95 %], "
        'and the number of runs that reached it. "never": more than half of the runs did not reach it in the budget.',
        ["", *(f"{environment}, {threshold:g}" for environment, threshold in thresholds.items())],
        rows,
        best="lowest",
    )


def settings(comparison: Comparison) -> tuple[TableOfText, TableOfText]:
    """Table of the settings that differ between methods, and table of the settings that all methods share."""
    columns: dict[str, dict[str, str]] = {}
    for summary in comparison.summaries:
        is_named = len(comparison.environments) > 1
        column = f"{summary.algorithm}, {summary.environment}" if is_named else summary.algorithm
        columns.setdefault(column, _flat(summary.experiment))
    # Every method has the same seeds.
    names = [name for name in dict.fromkeys(n for column in columns.values() for n in column) if name != "config.seed"]
    rows = [[name, *(column.get(name, NONE) for column in columns.values())] for name in names]
    different = [row for row in rows if len(set(row[1:])) > 1]
    same = [row[:2] for row in rows if len(set(row[1:])) == 1]
    return (
        TableOfText("Settings that differ", "-: the method has no such setting.", ["", *columns], different),
        TableOfText("Settings of all runs", "", ["", ""], same),
    )


def costs(comparison: Comparison) -> TableOfText:
    def cell(algorithm: str, environment: str) -> str:
        curves = [
            [run.curve(name) for name in ("update", "seconds/total", "sampled_tokens")]
            for run in comparison.runs(algorithm, environment)
        ]
        ends = np.array([[curve[-1] for curve in each] for each in curves if all(map(len, each))])
        if not len(ends):
            return NONE
        seconds, tokens = ends[:, 1:].mean(axis=0)
        written = f"{tokens:,.0f} tokens, " if comparison.writes_text(environment) else ""
        return f"{seconds:,.0f} s, {written}{ends[0, 0]:.0f} updates"

    return TableOfText(
        "Cost of a run",
        "Wall time of rollouts and learning, without evaluation. Other processes may have slowed the machine.",
        ["", *comparison.environments],
        _rows(comparison, cell),
    )


def _flat(experiment: object, prefix: str = "") -> dict[str, str]:
    if isinstance(experiment, dict) and experiment:
        pieces = [_flat(value, f"{prefix}.{key}" if prefix else key) for key, value in experiment.items()]
        return {name: value for piece in pieces for name, value in piece.items()}
    return {prefix: experiment if isinstance(experiment, str) else json.dumps(experiment)}


def _with_runs(estimate: Interval, num_runs: int) -> Estimate:
    return Estimate(f"{estimate.value:.3f} (one run)" if num_runs < 2 else str(estimate), estimate)


NATURAL_ENDS: Mapping[str, tuple[float, ...]] = {"trace": (0.0, 1.0), "discount": (0.0, 1.0)}  # valid range


def search(comparison: Comparison) -> TableOfText:
    rows = []
    for environment in comparison.environments:
        entries: dict[str, list[str]] = {}
        for algorithm in comparison.algorithms:
            runs = comparison.runs(algorithm, environment)
            if runs:
                entries.setdefault(runs[0].experiment["algorithm"], []).append(algorithm)
        for name, tried in entries.items():
            configs = {each: dict(comparison.runs(each, environment)[0].experiment["config"]) for each in tried}
            scores = {each: comparison.scores(each, environment, "training") for each in tried}
            best = max(tried, key=lambda each: float(scores[each].mean()))
            found = interval(mean, scores[best][:, None], bounds=comparison.bounds(environment))
            names = dict.fromkeys(name for config in configs.values() for name in config if name != "seed")
            columns = {name: [config.get(name) for config in configs.values()] for name in names}
            varied = {name: values for name, values in columns.items() if len(set(map(str, values))) > 1}
            score = Estimate(str(found), found) if len(scores[best]) > 1 else f"{found.value:.3f} (one run)"
            chosen = ", ".join(f"{setting} {configs[best][setting]}" for setting in varied) or NONE
            ends = ", ".join(at_an_end(configs[best], varied)) or "none"
            rows.append([f"{name}, {environment}", str(len(tried)), best, score, chosen, ends])
    return TableOfText(
        "Search: the best entry of each algorithm",
        "The best entry has the highest mean return over the last half of training [95 % interval over seeds]. Open "
        "ends: settings whose best value is the least or greatest tried value. The search is complete if there are "
        "none.",
        ["", "entries", "best", "return", "settings", "open ends"],
        rows,
    )


def at_an_end(chosen: Mapping[str, Any], varied: Mapping[str, Sequence[Any]]) -> list[str]:
    """Numeric settings whose best value is the least or greatest tried value, and not an end of the valid range.

    None (no layer) is less than all numbers.
    """
    found = []
    for name, values in varied.items():
        if chosen[name] is None or not all(type(value) in (int, float, type(None)) for value in values):
            continue
        known = sorted(-1.0 if value is None else float(value) for value in values)
        own = float(chosen[name])
        if own in (known[0], known[-1]) and own not in NATURAL_ENDS.get(name, ()):
            found.append(f"{name} {'least' if own == known[0] else 'greatest'}")
    return found
