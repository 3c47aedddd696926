"""A comparison → figures, one PNG file each, small enough to be read on a phone."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ...algorithms.rollout.intervals import Floats
from ..comparison.suite import slug
from ..comparison.summaries import RunSummary
from .comparison import Comparison
from .curves import NEVER, aligned, common_grid, median_cost, smoothed
from .statistics import interval, mean, profile_bands, student_quantile

# Okabe and Ito's colours, which colour-blind people tell apart, then grey.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8B6F00", "#777777")
LINES = ("-", "--", "-.", ":")
SMOOTHING = 5
BELOW = 0.18  # rows from a method's bar to its runs' dots, which the bar would hide
COSTS = {
    "environment_steps": "environment steps",
    "sampled_tokens": "generated tokens",
    "seconds/total": "seconds",
}

Draw = Callable[[Any], None]


def draw_figures(comparison: Comparison, folder: Path) -> dict[str, list[Path]]:
    """Draw all figures; returns their files by the section of the page."""
    folder.mkdir(parents=True, exist_ok=True)
    sections: dict[str, list[Path]] = {}
    for section, name, title, draw in _figures(comparison):
        path = folder / f"{slug(name)}.png"
        _save(path, title, draw, comparison)
        sections.setdefault(section, []).append(path)
    return sections


def _figures(comparison: Comparison) -> Iterator[tuple[str, str, str, Draw]]:
    for cost, label in COSTS.items():
        names = comparison.environments
        for name in filter(comparison.writes_text, names) if cost == "sampled_tokens" else names:
            yield (
                f"Learning curves against {label}",
                f"curve {label} {name}",
                name,
                partial(_curves, comparison=comparison, environment=name, cost=cost),
            )
    for name in comparison.environments:
        yield "Final scores", f"final {name}", name, partial(_final, comparison=comparison, environment=name)
    for name in comparison.thresholds:
        title = f"{name}: return of {comparison.thresholds[name]:g}"
        yield "Steps to a threshold", f"steps to threshold {name}", title, partial(_reaching, comparison, name)
    if comparison.has_one_scale:
        yield "Performance profiles", "profile", "all environments", partial(_profiles, comparison=comparison)
    for field, section, file, draw in (
        ("explained_variance", "Explained variance of the critics", "explained variance", _explained_variance),
        ("advantage_square", "Spread of the advantages", "advantages", _advantages),
    ):
        for name in _with(comparison, field):
            yield section, f"{file} {name}", name, partial(draw, comparison=comparison, environment=name)


def _with(comparison: Comparison, field: str) -> list[str]:
    """Environments where some run has the diagnostic; agents that act by vectors have none."""
    having = {run.environment for run in comparison.finished if not np.isnan(_column(run, field)).all()}
    return [name for name in comparison.environments if name in having]


def _save(path: Path, title: str, draw: Draw, comparison: Comparison) -> None:
    figure = Figure(figsize=(5.2, 3.9), layout="constrained")
    axes = figure.subplots()
    axes.set_title(title, fontsize=11)
    draw(axes)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    handles, labels = axes.get_legend_handles_labels()
    if handles:
        figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False, fontsize=9)
    figure.savefig(path, dpi=130, metadata={"Software": None})


def _style(comparison: Comparison, algorithm: str) -> dict[str, str]:
    number = comparison.algorithms.index(algorithm)
    return {"color": COLOURS[number % len(COLOURS)], "linestyle": LINES[number // len(COLOURS) % len(LINES)]}


def _curves(axes: Any, comparison: Comparison, environment: str, cost: str) -> None:
    means = []
    for algorithm in comparison.algorithms:
        curves = [run.learning_curve(cost) for run in comparison.runs(algorithm, environment)]
        curves = [(costs, returns) for costs, returns in curves if len(returns) > 1]
        if not curves:
            continue
        grid = common_grid([costs for costs, _ in curves])
        values = np.array([aligned(costs, smoothed(returns, SMOOTHING), grid) for costs, returns in curves])
        style = _style(comparison, algorithm)
        means.append(values.mean(axis=0))
        axes.plot(grid, values.mean(axis=0), label=algorithm, linewidth=1.8, **style)
        if len(curves) > 1:
            half = student_half_width(values)
            axes.fill_between(
                grid, values.mean(axis=0) - half, values.mean(axis=0) + half, color=style["color"], alpha=0.13, lw=0
            )
    axes.set(xlabel=COSTS[cost], ylabel="team return")
    if means:
        # Bands of two or three seeds can be wider than all returns; the picture is of the means.
        low, high = min(map(np.min, means)), max(map(np.max, means))
        margin = max(0.05, 0.6 * (high - low))
        axes.set_ylim(low - margin, high + margin)


def student_half_width(values: Floats) -> Floats:
    """[R, M] → [M]: half of the 95 % interval of the mean over runs, point by point."""
    num_runs = len(values)
    spread = values.std(axis=0, ddof=1) / math.sqrt(num_runs)
    half: Floats = student_quantile(0.975, num_runs - 1) * spread
    return half


def _final(axes: Any, comparison: Comparison, environment: str) -> None:
    names = [name for name in comparison.algorithms if len(comparison.scores(name, environment))]
    for row, name in enumerate(names):
        scores = comparison.scores(name, environment)
        estimate = interval(mean, scores[:, None])
        color = _style(comparison, name)["color"]
        axes.scatter(scores, [row + BELOW] * len(scores), color=color, alpha=0.5, s=18, linewidths=0)
        if len(scores) > 1:
            axes.plot([estimate.low, estimate.high], [row, row], color=color, linewidth=3, alpha=0.8)
        axes.plot([estimate.value], [row], "|", color="black", markersize=13, markeredgewidth=2)
    starts = [run.start_score() for run in comparison.finished if run.environment == environment]
    if starts:
        axes.axvline(float(np.mean(starts)), color="#777777", linestyle=":", linewidth=1)
    axes.set(yticks=range(len(names)), yticklabels=names, xlabel="held-out return (dotted: before training)")
    axes.set_ylim(len(names) - 0.5, -0.5)


def _reaching(comparison: Comparison, environment: str, axes: Any) -> None:
    names = [name for name in comparison.algorithms if comparison.runs(name, environment)]
    end = max(float(run.curve("environment_steps")[-1]) for name in names for run in comparison.runs(name, environment))
    never = 1.08 * end  # beyond the budget, where runs stand that did not get there
    for row, name in enumerate(names):
        costs = comparison.costs_to_reach(name, environment, "environment_steps")
        found = median_cost(costs)
        low, high, middle = (never if value == NEVER else value for value in (found.low, found.high, found.median))
        color = _style(comparison, name)["color"]
        drawn = [never if cost == NEVER else cost for cost in costs]
        axes.scatter(drawn, [row + BELOW] * len(drawn), color=color, alpha=0.5, s=18, linewidths=0)
        if len(costs) > 1:
            axes.plot([low, high], [row, row], color=color, linewidth=3, alpha=0.8)
        axes.plot([middle], [row], "|", color="black", markersize=13, markeredgewidth=2)
    axes.axvspan(1.04 * end, 1.12 * end, color="#777777", alpha=0.12, lw=0)
    axes.set(yticks=range(len(names)), yticklabels=names, xlabel="environment steps (grey: not within the budget)")
    axes.set_xlim(0, 1.12 * end)
    axes.set_ylim(len(names) - 0.5, -0.5)


def _profiles(axes: Any, comparison: Comparison) -> None:
    for name in comparison.algorithms:
        matrix = comparison.matrix(name)
        if matrix is None:
            continue
        thresholds = np.linspace(0, 1, 101)
        value, low, high = profile_bands(matrix, thresholds)
        style = _style(comparison, name)
        axes.plot(thresholds, value, label=name, linewidth=1.8, **style)
        axes.fill_between(thresholds, low, high, color=style["color"], alpha=0.1, lw=0)
    axes.set(xlabel="return", ylabel="share of runs above it", ylim=(-0.02, 1.02))


def _by_turn(axes: Any, comparison: Comparison, environment: str, field: str) -> None:
    for name in comparison.algorithms:
        curves = [_column(run, field) for run in comparison.runs(name, environment)]
        curves = [curve for curve in curves if len(curve) and not np.isnan(curve).all()]
        if not curves:
            continue
        length = max(map(len, curves))
        padded = np.array([np.pad(curve, (0, length - len(curve)), constant_values=np.nan) for curve in curves])
        columns = [column[~np.isnan(column)] for column in padded.T]
        turns = [turn for turn, column in enumerate(columns) if len(column)]
        means = [columns[turn].mean() for turn in turns]
        spread = [columns[turn].std(ddof=1) if len(columns[turn]) > 1 else 0.0 for turn in turns]
        offset = 0.03 * (comparison.algorithms.index(name) - len(comparison.algorithms) / 2)
        style = _style(comparison, name)
        axes.errorbar(np.array(turns) + 1 + offset, means, spread, label=name, marker="o", ms=4, capsize=2, **style)
    axes.set_xlabel("turn (bars: deviation between seeds)")
    axes.set_xlim(0.5, axes.get_xlim()[1].round() + 0.5)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))  # with 2, one turn would get fractions


def _explained_variance(axes: Any, comparison: Comparison, environment: str) -> None:
    _by_turn(axes, comparison, environment, "explained_variance")
    axes.axhline(0, color="#777777", linewidth=1)
    axes.set_ylabel("explained variance")
    axes.set_ylim(max(-1.0, axes.get_ylim()[0]), 1.02)


def _advantages(axes: Any, comparison: Comparison, environment: str) -> None:
    _by_turn(axes, comparison, environment, "advantage_square")
    axes.set_ylabel("mean square of advantages")
    axes.set_ylim(bottom=0)


def _column(run: RunSummary, field: str) -> Floats:
    values: Sequence[float | None] = [getattr(turn, field) for turn in run.diagnostics]
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)
