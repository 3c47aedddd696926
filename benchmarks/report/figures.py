"""Charts → figures, one PNG file each, small enough to be read on a phone, for papers and READMEs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ..._ownership import owned
from ..comparison.suite import slug
from .charts import COSTS, Chart
from .statistics import have_common_stretch, mean_curve, smoothed

# Okabe and Ito's colours, which colour-blind people tell apart, then a dark and a grey one.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#332288", "#777777")
LINES = ("-", "--", "-.", ":")
SMOOTHING = 5
FOLDER = "figures"
BELOW = 0.18  # rows from a method's bar to its runs' dots, which the bar would hide

Styles = Mapping[str, Mapping[str, Any]]
Draw = Callable[[Any, Chart, Styles], None]


def figures_of(charts: Sequence[Chart]) -> dict[str, tuple[Chart, Draw]]:
    """Figures by file name: one for each chart, called after it, and of curves one for each cost."""
    found: dict[str, tuple[Chart, Draw]] = {}
    for chart in charts:
        if chart.kind == "curves":
            for cost in (cost for cost in COSTS if cost in chart.series[0]["costs"]):
                name = chart.name.replace("curve", f"curve {COSTS[cost]}", 1)
                found[f"{FOLDER}/{slug(name)}.png"] = chart, partial(_curves, cost=cost)
        elif chart.kind in DRAWN:
            found[f"{FOLDER}/{slug(chart.name)}.png"] = chart, DRAWN[chart.kind]
    return found


def draw_figures(figures: Mapping[str, tuple[Chart, Draw]], methods: Sequence[str], folder: Path) -> None:
    """Draw the figures of `figures_of` into a folder.

    Args:
        methods: names of all methods, which have the same colour in all figures.
    """
    styles = {
        name: {"color": COLOURS[place % len(COLOURS)], "linestyle": LINES[place // len(COLOURS) % len(LINES)]}
        for place, name in enumerate(methods)
    }
    for name, (chart, draw) in figures.items():
        with owned(folder, name) as new:
            _save(new, chart, draw, styles)


def _save(path: Path, chart: Chart, draw: Draw, styles: Styles) -> None:
    figure = Figure(figsize=(5.2, 3.9), layout="constrained")
    axes = figure.subplots()
    axes.set_title(chart.title, fontsize=11)
    axes.set(xlabel=chart.x, ylabel=chart.y)
    draw(axes, chart, styles)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    handles, labels = axes.get_legend_handles_labels()
    if handles:
        figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False, fontsize=9)
    figure.savefig(path, dpi=130, metadata={"Software": None})


def _curves(axes: Any, chart: Chart, styles: Styles, cost: str) -> None:
    means = []
    for method in dict.fromkeys(entry["method"] for entry in chart.series):
        runs = [entry for entry in chart.series if entry["method"] == method]
        curves = [(np.array(run["costs"][cost]), np.array(run["y"])) for run in runs]
        if not have_common_stretch([costs for costs, _ in curves]):  # seconds of runs at very different speeds
            for number, (costs, scores) in enumerate(curves):
                means.append(smoothed(scores, SMOOTHING))
                label = f"{method}, each run" if number == 0 else None
                axes.plot(costs, means[-1], label=label, linewidth=0.8, **styles[method])
            continue
        grid, middle, half = mean_curve(curves, SMOOTHING)
        means.append(middle)
        axes.plot(grid, middle, label=method, linewidth=1.8, **styles[method])
        if half is not None:
            axes.fill_between(grid, middle - half, middle + half, color=styles[method]["color"], alpha=0.13, lw=0)
    axes.set_xlabel(COSTS[cost])
    # Bands of two or three seeds can be wider than all returns; the picture is of the means.
    low, high = min(map(np.min, means)), max(map(np.max, means))
    margin = max(0.05, 0.6 * (high - low))
    axes.set_ylim(low - margin, high + margin)


def _intervals(axes: Any, chart: Chart, styles: Styles) -> None:
    if chart.level is not None:
        axes.axvline(chart.level, color="#777777", linestyle=":", linewidth=1)
        axes.set_xlabel(f"{chart.x}\n(dotted: before training)")
    for row, entry in enumerate(chart.series):
        _row(axes, row, entry, styles)
    _name_rows(axes, chart)


def _costs(axes: Any, chart: Chart, styles: Styles) -> None:
    end = chart.level or 1.0
    never = 1.08 * end  # beyond the budget, where runs stand that did not get there
    for row, entry in enumerate(chart.series):
        drawn = {name: never if entry[name] is None else entry[name] for name in ("value", "low", "high")}
        runs = [never if run is None else run for run in entry["runs"]]
        _row(axes, row, {"method": entry["method"], "runs": runs, **drawn}, styles)
    axes.axvspan(1.04 * end, 1.12 * end, color="#777777", alpha=0.12, lw=0)
    axes.set_xlim(0, 1.12 * end)
    _name_rows(axes, chart)


def _row(axes: Any, row: int, entry: Mapping[str, Any], styles: Styles) -> None:
    color = styles[entry["method"]]["color"]
    axes.scatter(entry["runs"], [row + BELOW] * len(entry["runs"]), color=color, alpha=0.5, s=18, linewidths=0)
    if len(entry["runs"]) > 1:
        axes.plot([entry["low"], entry["high"]], [row, row], color=color, linewidth=3, alpha=0.8)
    axes.plot([entry["value"]], [row], "|", color="black", markersize=13, markeredgewidth=2)


def _name_rows(axes: Any, chart: Chart) -> None:
    axes.set(yticks=range(len(chart.series)), yticklabels=[entry["method"] for entry in chart.series])
    axes.set_ylim(len(chart.series) - 0.5, -0.5)


def _lines(axes: Any, chart: Chart, styles: Styles) -> None:
    for entry in chart.series:
        style = styles[entry["method"]]
        axes.plot(entry["x"], entry["value"], label=entry["method"], linewidth=1.8, **style)
        axes.fill_between(entry["x"], entry["low"], entry["high"], color=style["color"], alpha=0.1, lw=0)
    axes.set_ylim(-0.02, 1.02)


def _turns(axes: Any, chart: Chart, styles: Styles) -> None:
    for place, entry in enumerate(chart.series):
        offset = 0.03 * (place - len(chart.series) / 2)
        style = styles[entry["method"]]
        turns = np.array(entry["x"]) + offset
        axes.errorbar(
            turns, entry["value"], entry["spread"], label=entry["method"], marker="o", ms=4, capsize=2, **style
        )
    axes.axhline(0, color="#777777", linewidth=1)
    axes.set_xlim(0.5, axes.get_xlim()[1].round() + 0.5)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))  # with 2, one turn would get fractions


DRAWN: Mapping[str, Draw] = {"intervals": _intervals, "costs": _costs, "lines": _lines, "turns": _turns}
