"""Figures of a report, drawn with matplotlib: SVG for the page, PNG files for papers and READMEs."""

from __future__ import annotations

import html
import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ...algorithms.rollout.intervals import Floats, Interval
from ...envs.registration.registry import Range
from ..comparison.suite import slug
from ..comparison.summaries import RunSummary
from .comparison import Comparison, paired
from .statistics import (
    NEVER,
    difference,
    have_common_stretch,
    interval,
    mean,
    mean_curve,
    median_cost,
    profile_bands,
    smoothed,
    thinned,
)

COSTS = {"environment_steps": "environment steps", "sampled_tokens": "generated tokens", "seconds/total": "seconds"}
MAX_POINTS = 200  # limit of a drawn curve; in longer curves, a point is the mean of several updates
SMOOTHING = 5
FOLDER = "figures"
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#332288", "#777777")
"""Colours of methods: Okabe and Ito's, which colour-blind readers can distinguish, then dark blue and grey."""
LINES = ("-", "--", "-.", ":")
SOFT, ABOVE, BELOW = "#707070", "#0072b3", "#c24f00"
VARIABLES = {"#000000": "--ink", SOFT: "--soft", ABOVE: "--above", BELOW: "--below"} | {
    colour: f"--method-{place}" for place, colour in enumerate(COLOURS)
}
"""Maps each colour in an SVG to the variable of page.css that replaces it, so that figures follow the colour scheme."""
BARS = "Vertical bars: standard deviation between seeds. Horizontal bars: 95 % interval of the mean."
DOTS_OFFSET = 0.2  # distance in rows between a bar and its runs' dots, which the bar would hide

Styles = Mapping[str, Mapping[str, Any]]
Draw = Callable[[Any, Styles], None]
Curve = tuple[Floats, Floats]


class Bar(NamedTuple):
    """Row of a bar chart: the estimate of a method, and the values of its runs (dots)."""

    method: str
    estimate: Interval
    runs: Sequence[float] = ()


@dataclass(frozen=True, kw_only=True)
class Chart:
    """Figure with either `bars` or `panels`."""

    name: str  # `slug(name)` is the name of the PNG file
    title: str
    x: str
    y: str = ""
    bars: Sequence[Bar] = ()
    level: float | None = None  # return before training, drawn as a vertical line through the bars
    budget: float | None = None  # end of the axis of a cost; a cost of `NEVER` is drawn in a grey strip beyond it
    is_difference: bool = False  # True: the bars show differences, which are coloured by their sign
    panels: Mapping[str, Draw] = field(default_factory=dict)  # titles of the panels, and functions that draw them

    @property
    def file(self) -> str:
        return f"{FOLDER}/{slug(self.name)}.png"

    @property
    def description(self) -> str:
        """Alternative text of the figure, for screen readers."""
        numbers = "; ".join(f"{bar.method} {_described(bar)}" for bar in self.bars)
        return f"{self.title}, {self.x}: {numbers}" if numbers else f"{self.title}: {self.y} by method"


@dataclass(frozen=True)
class Section:
    title: str
    note: str
    charts: Sequence[Chart]


def sections(comparison: Comparison) -> list[Section]:
    """All figures of a comparison except the headline's figure. Sections without a figure are omitted."""
    names = comparison.environments
    found = (
        Section(
            "Paired differences, drawn",
            f"Mean of {comparison.reference()}'s final held-out return minus the other method's with the same seed, "
            "and its 95 % interval. No correction is made for the number of methods. Grey: the interval contains 0.",
            list(_differences(comparison)),
        ),
        Section(
            "Learning curves",
            "Mean training return over seeds; band: 95 % Student interval of the mean, at each point. Each curve is "
            f"smoothed over {SMOOTHING} points. With more than two methods, a panel shows the band of one method.",
            [chart for name in names for chart in _curves(comparison, name)],
        ),
        Section(
            "Final scores",
            "Held-out return at the end: each seed (dots), their mean and its 95 % interval.",
            list(_final(comparison)),
        ),
        Section(
            "Steps to a threshold",
            "Environment steps until the mean training return of five updates reached the threshold: each seed "
            "(dots), their median and its 95 % interval. In the grey strip: not within the budget.",
            [_reaching(comparison, name) for name in comparison.thresholds],
        ),
        Section(
            "Performance profiles",
            "Fraction of all runs above each return; band: 95 %, at each point.",
            list(_profiles(comparison)),
        ),
        Section(
            "Explained variance of the critics",
            "1 - Var(return - value) / Var(return) in the last third of training, by turn; 1 is perfect, 0 is no "
            f"better than a constant. {BARS}",
            list(_by_turn(comparison, "explained_variance", "explained variance", "explained variance")),
        ),
        Section(
            "Spread of the advantages",
            "Mean square of the advantages before normalization, in the last third of training, by turn; the noise "
            f"of the policy gradient grows with it. {BARS}",
            list(_by_turn(comparison, "advantage_square", "advantages", "mean square of advantages")),
        ),
    )
    return [section for section in found if section.charts]


def svg(chart: Chart, methods: Sequence[str]) -> str:
    """Draw the figure as an SVG element of the page. `methods`: all methods, whose order determines their colours."""
    # Each figure has its own salt, because equal ids in two figures of a page would clash.
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": chart.name}), io.StringIO() as file:
        _drawn(chart, methods).savefig(file, format="svg", metadata={"Date": None}, transparent=True)
        text = file.getvalue()
    view = re.search(r'viewBox="([^"]*)"', text)
    assert view is not None
    # Remove the metadata and the style sheet, which would apply to the whole page.
    text = re.sub(r"<(metadata|style)\b.*?</\1>", "", text[text.index(">", view.end()) + 1 :], flags=re.S)
    used = set(re.findall(r'#(\w+)[)"]', text))
    text = re.sub(r' id="([^"]*)"', lambda found: found[0] if found[1] in used else "", text)
    for colour, variable in VARIABLES.items():
        text = re.sub(rf"{colour}(?=[;\"])", f"var({variable})", text)
    label = html.escape(chart.description)
    return f'<svg viewBox="{view[1]}" role="img" aria-label="{label}">{text}'


def write_png(chart: Chart, methods: Sequence[str], path: Path) -> None:
    _drawn(chart, methods).savefig(path, format="png", dpi=130, metadata={"Software": None})


def _drawn(chart: Chart, methods: Sequence[str]) -> Figure:
    styles = {
        name: {"color": COLOURS[place % len(COLOURS)], "linestyle": LINES[place // len(COLOURS) % len(LINES)]}
        for place, name in enumerate(methods)
    }
    with rc_context({"text.parse_math": False}):  # do not parse $ in a name as a formula
        panels = chart.panels or {chart.title: partial(_draw_bars, chart)}
        rows, columns = (1, 1) if len(panels) == 1 else (-(-len(panels) // 2), 2)
        height = 1.2 + 0.38 * len(chart.bars) if chart.bars else 3.9 if columns == 1 else 1.3 + 1.9 * rows
        figure = Figure(figsize=(5.2, height), layout="constrained")
        grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).flatten()
        if columns == 2:
            figure.suptitle(chart.title, fontsize=11)
        for number, (axes, (title, draw)) in enumerate(zip(grid, panels.items(), strict=False)):
            axes.set_title(title, fontsize=11 if columns == 1 else 10)
            axes.set_xlabel(chart.x if number >= len(panels) - columns else "")
            axes.set_ylabel(chart.y if number % columns == 0 else "")
            if columns == 2:
                axes.xaxis.set_major_locator(MaxNLocator(3))
            draw(axes, styles)
            axes.tick_params(labelbottom=True)
            axes.grid(alpha=0.25)
            axes.spines[["top", "right"]].set_visible(False)
        for axes in grid[len(panels) :]:
            axes.remove()
        handles, labels = grid[0].get_legend_handles_labels()
        if handles:
            figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False, fontsize=9)
    return figure


def _draw_bars(chart: Chart, axes: Any, styles: Styles) -> None:
    never = 1.08 * (chart.budget or 0.0)

    def drawn(values: Iterable[float]) -> Floats:
        return np.array([never if value == NEVER else value for value in values], dtype=np.float64)

    for row, bar in enumerate(chart.bars):
        value, low, high = drawn([bar.estimate.value, bar.estimate.low, bar.estimate.high])
        colour = (ABOVE if low > 0 else BELOW if high < 0 else SOFT) if chart.is_difference else None
        colour = colour or styles[bar.method]["color"]
        axes.scatter(drawn(bar.runs), [row + DOTS_OFFSET] * len(bar.runs), color=colour, alpha=0.5, s=18, linewidths=0)
        axes.plot([low, high], [row, row], color=colour, linewidth=5, alpha=0.6, solid_capstyle="butt")
        axes.plot([value], [row], "|", color="black", markersize=13, markeredgewidth=2)
    if chart.is_difference:
        axes.axvline(0, color="black", linewidth=1)
    if chart.budget is not None:
        axes.axvspan(1.04 * chart.budget, 1.12 * chart.budget, color=SOFT, alpha=0.15, lw=0)
        axes.set_xlim(0, 1.12 * chart.budget)
    if chart.level is not None:
        low, high = axes.get_xlim()
        # A distant line would compress all intervals into a small part of the axis.
        is_near = low - (high - low) < chart.level < high + (high - low)
        if is_near:
            axes.axvline(chart.level, color=SOFT, linestyle=":", linewidth=1.5)
        axes.set_xlabel(f"{chart.x}\n({'dotted' if is_near else 'not drawn'}: {chart.level:.3g} before training)")
    axes.set(yticks=range(len(chart.bars)), yticklabels=[bar.method for bar in chart.bars])
    axes.set_ylim(len(chart.bars) - 0.5, -0.5)


def _described(bar: Bar) -> str:
    found = bar.estimate
    numbers = ["never" if each == NEVER else f"{each:.3g}" for each in (found.value, found.low, found.high)]
    return f"{numbers[0]} (one run)" if np.isnan(found.low) else f"{numbers[0]} [{numbers[1]}, {numbers[2]}]"


def _curves(comparison: Comparison, environment: str) -> Iterator[Chart]:
    for cost, label in COSTS.items():
        if cost == "sampled_tokens" and not comparison.writes_text(environment):
            continue
        curves: dict[str, list[Curve]] = {}
        for method in comparison.algorithms:
            for run in comparison.runs(method, environment):
                costs, returns = run.learning_curve(cost)
                if len(returns) > 1:
                    thin = thinned(costs, MAX_POINTS, keeps="last"), thinned(returns, MAX_POINTS)
                    curves.setdefault(method, []).append(thin)
        if curves:
            name = f"curve {label} {environment}"
            draw = partial(_draw_curves, curves, comparison.bounds(environment))
            panels = {environment: partial(draw, None)}
            if 2 < len(curves) <= len(COLOURS):  # more bands in one panel would hide the curves
                panels = {"all methods": partial(draw, None), **{method: partial(draw, method) for method in curves}}
            yield Chart(name=name, title=environment, x=label, y="team return", panels=panels)


def _draw_curves(
    curves: Mapping[str, Sequence[Curve]], bounds: Range, chosen: str | None, axes: Any, styles: Styles
) -> None:
    """Draw mean curves. `chosen`: the method with a band; others are grey. None: all in colour, at most two bands."""
    means = []
    for method, runs in curves.items():
        is_behind = chosen not in (None, method)
        style = {"color": SOFT, "alpha": 0.4} if is_behind else styles[method]
        if not have_common_stretch([costs for costs, _ in runs]):  # seconds of runs at very different speeds
            for number, (costs, scores) in enumerate(runs):
                means.append(smoothed(scores, SMOOTHING))
                label = f"{method}, each run" if number == 0 and chosen is None else None
                axes.plot(costs, means[-1], label=label, linewidth=0.8, **style)
            continue
        grid, middle, half = mean_curve(runs, SMOOTHING)
        means.append(middle)
        axes.plot(grid, middle, label=method if chosen is None else None, linewidth=1 if is_behind else 1.8, **style)
        if half is not None and (method == chosen or len(curves) < 3):
            low, high = np.clip([middle - half, middle + half], *bounds)
            axes.fill_between(grid, low, high, color=style["color"], alpha=0.13, lw=0)
    # Scale the axis to the means, because bands of two or three seeds can be wider than all returns.
    low, high = min(map(np.min, means)), max(map(np.max, means))
    margin = max(0.05, 0.6 * (high - low))
    outside = 0.02 * (high - low + margin)  # so that a curve at the end of the range remains visible
    axes.set_ylim(max(low - margin, bounds[0] - outside), min(high + margin, bounds[1] + outside))


def _final(comparison: Comparison) -> Iterator[Chart]:
    for environment in comparison.environments:
        bounds = comparison.bounds(environment)
        scores = {method: comparison.scores(method, environment) for method in comparison.algorithms}
        bars = [
            Bar(method, interval(mean, found[:, None], bounds=bounds), found.tolist())
            for method, found in scores.items()
            if len(found)
        ]
        if bars:
            level = comparison.start(environment)
            name = f"final {environment}"
            yield Chart(name=name, title=environment, x="held-out return", bars=bars, level=level)


def _reaching(comparison: Comparison, environment: str) -> Chart:
    bars, ends = [], []
    for method in comparison.algorithms:
        if runs := comparison.runs(method, environment):
            costs = comparison.costs_to_reach(method, environment, "environment_steps")
            found = median_cost(costs)
            bars.append(Bar(method, Interval(found.median, found.low, found.high), costs))
            ends += [run.curve("environment_steps")[-1] for run in runs]
    return Chart(
        name=f"steps to threshold {environment}",
        title=f"{environment}: return of {comparison.thresholds[environment]:g}",
        x="environment steps (grey: not within budget)",
        bars=bars,
        budget=float(max(ends)),
    )


def _profiles(comparison: Comparison) -> Iterator[Chart]:
    matrices = {method: comparison.matrix(method) for method in comparison.algorithms}
    if not comparison.has_one_scale or all(matrix is None for matrix in matrices.values()):
        return
    thresholds = np.linspace(0, 1, 101)

    def draw(axes: Any, styles: Styles) -> None:
        for method, matrix in matrices.items():
            if matrix is not None:
                value, low, high = profile_bands(matrix, thresholds)
                axes.plot(thresholds, value, label=method, linewidth=1.8, **styles[method])
                axes.fill_between(thresholds, low, high, color=styles[method]["color"], alpha=0.1, lw=0)
        axes.set_ylim(-0.02, 1.02)

    title = "all environments"
    yield Chart(name="profile", title=title, x="return", y="fraction of runs above it", panels={title: draw})


def _by_turn(comparison: Comparison, field: str, name: str, label: str) -> Iterator[Chart]:
    """One chart per environment in which a run has the diagnostic. Agents that act by vectors have none."""
    for environment in comparison.environments:
        columns = {
            method: found
            for method in comparison.algorithms
            if (found := _turns(comparison.runs(method, environment), field))
        }
        if columns and all(turns.keys() == {1} for turns in columns.values()):
            bounds = (-np.inf, 1.0) if field == "explained_variance" else (0.0, np.inf)
            bars = [
                Bar(method, interval(mean, turns[1][:, None], bounds=bounds), turns[1].tolist())
                for method, turns in columns.items()
            ]
            yield Chart(name=f"{name} {environment}", title=environment, x=label, bars=bars)
        elif columns:
            panels = {environment: partial(_draw_turns, columns)}
            yield Chart(name=f"{name} {environment}", title=environment, x="turn", y=label, panels=panels)


def _turns(runs: Sequence[RunSummary], field: str) -> dict[int, Floats]:
    """Values of a diagnostic in all runs. Keys: turns, starting at 1."""
    columns: dict[int, list[float]] = {}
    for run in runs:
        for number, turn in enumerate(run.diagnostics, 1):
            if (value := getattr(turn, field)) is not None and not np.isnan(value):
                columns.setdefault(number, []).append(value)
    return {number: np.array(columns[number]) for number in sorted(columns)}


def _draw_turns(columns: Mapping[str, Mapping[int, Floats]], axes: Any, styles: Styles) -> None:
    for place, (method, turns) in enumerate(columns.items()):
        offset = 0.03 * (place - len(columns) / 2)
        means = [values.mean() for values in turns.values()]
        spread = [values.std(ddof=1) if len(values) > 1 else 0.0 for values in turns.values()]
        style = {"label": method, "marker": "o", "ms": 4, "capsize": 2, **styles[method]}
        axes.errorbar(np.array(list(turns)) + offset, means, spread, **style)
    axes.axhline(0, color=SOFT, linewidth=1)
    axes.set_xlim(0.5, axes.get_xlim()[1].round() + 0.5)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))  # with 2, one turn would get fractions


def _differences(comparison: Comparison) -> Iterator[Chart]:
    """Paired differences: over all environments if returns share a scale, and per environment."""
    names = comparison.environments
    groups = {name: [name] for name in names}
    if len(names) > 1 and comparison.has_one_scale:
        groups = {"all environments": list(names), **groups}
    reference = comparison.reference()
    for title, group in groups.items():
        scores = {name: comparison.seeds_and_scores(name, group) for name in comparison.algorithms}
        bars = []
        for method in comparison.algorithms:
            first, second = paired(scores[reference], scores[method])
            if method != reference and len(first):
                bars.append(Bar(method, difference(mean, first, second, bounds=comparison.bounds(*group))))
        if bars:
            label = f"{reference} minus the other method"
            yield Chart(name=f"difference {title}", title=title, x=label, bars=bars, is_difference=True)
