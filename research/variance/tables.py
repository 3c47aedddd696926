"""Markdown page and figures of the measured cells."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from math import exp, log
from pathlib import Path
from textwrap import fill
from typing import Any

from bench import LEARNED
from matplotlib import colormaps
from matplotlib.figure import Figure
from noise import jackknife_error
from scipy import stats

from collm.benchmarks.markdown import markdown_table

Found = Mapping[str, Any]
"""Results of a cell, as returned by `bench.measure`."""
NONE = "-"
_COLOURS = {"own": "C1", "joint": "C0", "privileged": "C2", "ideal table": "0.4", "constant": "k"}


def read_cells(folder: Path) -> list[Found]:
    """Read the results of all cells in a folder, sorted by file name.

    Raises:
        FileNotFoundError: if the folder contains no JSON file.
    """
    files = sorted(folder.glob("*.json"))
    if not files:
        raise FileNotFoundError(f"{folder} contains no results of cells (*.json); give another --out, or measure first")
    return [json.loads(file.read_text(encoding="utf-8")) for file in files]


def title(cell: Found) -> str:
    """Return the title of a cell: its team and the settings of its environment."""
    told = ", ".join(f"{key} {value}" for key, value in cell["env_kwargs"].items())
    return f"{cell['policy']}: {told}{_critic(cell)}"


def _critic(cell: Found) -> str:
    """Return the name of a cell's critic for titles; empty for the default critic."""
    return "" if cell.get("critic", "small") == "small" else f", critic {cell['critic']}"


def page(cells: Sequence[Found]) -> str:
    """Return the Markdown page: a table of all cells, then one table per cell."""
    parts = [
        "# Noise of advantages and policy gradients, by critic and trace",
        "Frozen policies, no training. Variance: of the advantages, in units of the variance of returns. Correlation: "
        "with what the turn truly changed, known by branching the episode there; an estimate without bias from "
        "branches, which with few episodes may err by tenths, and above 1. Gradient: variance of an episode's "
        "policy gradient in all weights, in units of that with a constant for a baseline. The files also hold "
        "`samples`, the episodes whose mean gradient has as much variance as squared length along the true gradient; "
        "from fewer than some thousand episodes that is noise itself, so that tables leave it out.",
        "## What to expect",
        "Correlation at each critic's best trace with its standard error over tasks (jackknife), and the ratio of "
        "samples that it stands for, (joint / other)², with a 95 % interval: how many times fewer a centralized critic "
        "needs if the learning rate can follow. For samples go like 1 / correlation²: an advantage that is the true "
        "effect and noise has a gradient along the true one in proportion to cov(A, D), and a variance in proportion "
        "to var(A). EV: explained variance of the return, all turns together; the ideal table's is what the joint "
        "history holds.",
        overview(cells),
    ]
    for cell in cells:
        explained = ", ".join(f"{name} {_series(values)}" for name, values in cell["explained_variance"].items())
        parts += [
            f"## {title(cell)}",
            f"Return {cell['return']:.3f} over {cell['num_episodes']} episodes ({cell['return_known']:.3f} over those "
            f"that critics learned from). Explained variance by turn: {explained}.",
            cell_table(cell),
        ]
    return "\n\n".join(parts) + "\n"


def overview(cells: Sequence[Found]) -> str:
    """Return a table of each cell's best correlations, ratios of samples, and explained variances."""
    rows = []
    for cell in cells:
        best = {critic: best_row(cell, critic) for critic in ("constant", *LEARNED)}
        rows.append(
            [
                title(cell),
                f"{cell['return']:.2f}",
                *(_with_error(row) for row in best.values()),
                *(_interval(ratio_of_samples(best["joint"], best[other])) for other in ("constant", "own")),
                *(_explained(cell["explained_share"][critic]) for critic in ("own", "joint", "ideal table")),
            ]
        )
    header = ["", "return", "constant", *LEARNED, "joint : constant", "joint : own"]
    return markdown_table([*header, "EV own", "EV joint", "EV ideal table"], rows)


def cell_table(cell: Found) -> str:
    """Return a cell's table of variance · correlation · gradient, by critic and trace."""
    traces = sorted({row["trace"] for row in cell["rows"]})
    unit = next(row["gradient_variance"] for row in cell["rows"] if row["critic"] == "constant")
    rows = []
    for critic in dict.fromkeys(row["critic"] for row in cell["rows"]):
        found = {row["trace"]: row for row in cell["rows"] if row["critic"] == critic}
        rows.append([critic, *(_shown(found[trace], unit) if trace in found else NONE for trace in traces)])
    return markdown_table(["variance · correlation · gradient", *(f"trace {trace:g}" for trace in traces)], rows)


def draw(cells: Sequence[Found], file: Path) -> None:
    """Draw the correlation of advantages with true effects by trace, one panel per cell."""
    columns = min(4, len(cells))
    lines = -(-len(cells) // columns)
    figure = Figure(figsize=(3.4 * columns, 2.9 * lines), layout="constrained")
    panels = figure.subplots(lines, columns, squeeze=False, sharey=True)
    for axes in panels.flat[len(cells) :]:
        axes.set_visible(False)
    for axes, cell in zip(panels.flat, cells, strict=False):
        for critic in LEARNED:
            found = [(row["trace"], row["correlation"]) for row in cell["rows"] if row["critic"] == critic]
            known = [(trace, value) for trace, value in found if value is not None]
            if known:
                style = "--" if critic == "ideal table" else "-"
                axes.plot(*zip(*known, strict=True), style, marker="o", color=_COLOURS[critic], label=critic)
        constant = best_row(cell, "constant")
        if constant is not None:
            axes.axhline(
                constant["correlation"], color=_COLOURS["constant"], linewidth=1, linestyle=":", label="no critic"
            )
        axes.set(title=f"{fill(title(cell), 44)}\nreturn {cell['return']:.2f}", xlabel="trace (GAE's lambda)")
        axes.title.set_fontsize(8)
        axes.grid(alpha=0.3)
    for axes in panels[:, 0]:
        axes.set_ylabel("correlation with the true effect")
    if panels.flat[0].lines:
        panels.flat[0].legend(frameon=False, fontsize=8)
    figure.savefig(file, dpi=120)


def best_row(cell: Found, critic: str) -> Found | None:
    """Return the critic's row with the highest correlation. None: no correlation is known."""
    known = [row for row in cell["rows"] if row["critic"] == critic and row["correlation"] is not None]
    return max(known, key=lambda row: float(row["correlation"]), default=None)


def ratio_of_samples(better: Found | None, other: Found | None) -> tuple[float, float, float] | None:
    """Return (ratio, low, high): samples that `other` needs per sample of `better`, with a 95 % interval over tasks.

    None: a correlation is unknown or not positive, with all tasks or with one task left out.
    """
    if better is None or other is None:
        return None
    pairs = [(better["correlation"], other["correlation"]), *zip(better["left_out"], other["left_out"], strict=True)]
    if any(one is None or two is None or min(one, two) <= 0 for one, two in pairs):
        return None
    logs = [2 * log(one / two) for one, two in pairs]
    reach = float(stats.t.ppf(0.975, len(logs) - 2)) * jackknife_error(logs[1:])
    return exp(logs[0]), exp(logs[0] - reach), exp(logs[0] + reach)


def draw_samples(cells: Sequence[Found], file: Path) -> None:
    """Draw how many times fewer samples a joint critic needs than no critic and than own critics, by turns."""
    series: dict[str, list[Found]] = {}
    for cell in cells:
        series.setdefault(_setting(cell), []).append(cell)
    figure = Figure(figsize=(8.4, 4.4 + 0.1 * len(series)), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    for axes, other, said in zip(panels, ("constant", "own"), ("than no critic", "than own critics"), strict=True):
        for number, (name, group) in enumerate(series.items()):
            for critic, style in (("ideal table", "--"), ("joint", "-")):
                found = [
                    (cell["env_kwargs"]["max_turns"] * 1.03 ** (number - len(series) / 2), ratio)
                    for cell in sorted(group, key=lambda cell: int(cell["env_kwargs"]["max_turns"]))
                    if (ratio := ratio_of_samples(best_row(cell, critic), best_row(cell, other))) is not None
                ]
                if not found:
                    continue
                turns, values = [turn for turn, _ in found], [ratio[0] for _, ratio in found]
                if critic == "joint":
                    ends = [[ratio[0] - ratio[1] for _, ratio in found], [ratio[2] - ratio[0] for _, ratio in found]]
                    axes.errorbar(turns, values, ends, fmt=f"o{style}", color=_color(number), capsize=2, label=name)
                else:
                    axes.plot(turns, values, f"x{style}", color=_color(number), linewidth=1)
        axes.axhline(1, color="k", linewidth=1)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log", base=2)
        axes.set(title=f"times fewer samples {said}", xlabel="turns")
        axes.xaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_major_formatter("{x:g}")
        axes.grid(alpha=0.3)
    handles, labels = panels[0].get_legend_handles_labels()
    if handles:  # with few episodes, no correlation may be known
        told = {"title": "joint critic, learned (dashed: ideal)", "title_fontsize": 8}
        figure.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False, fontsize=8, **told)
    figure.savefig(file, dpi=120)


def _color(number: int) -> Any:
    """Return a color for each of up to 20 series. The first ten colors are more saturated."""
    return colormaps["tab20"](2 * number % 20 + number // 10)


def _setting(cell: Found) -> str:
    kwargs = cell["env_kwargs"]
    rest = {key: value for key, value in kwargs.items() if key not in ("max_turns", "num_agents")}
    told = ", ".join(str(value) for value in rest.values())
    return f"{cell['policy']}, {kwargs['num_agents']} agents, {told}{_critic(cell)}"


def _with_error(row: Found | None) -> str:
    if row is None:
        return NONE
    known = [each for each in row["left_out"] if each is not None]
    error = f" ± {jackknife_error(known):.2f}" if len(known) == len(row["left_out"]) else ""
    return f"{row['correlation']:.2f}{error}"


def _interval(ratio: tuple[float, float, float] | None) -> str:
    return NONE if ratio is None else f"{ratio[0]:.1f} [{ratio[1]:.1f}, {ratio[2]:.1f}]"


def _explained(share: float | None) -> str:
    return NONE if share is None else f"{share:.2f}"


def _shown(row: Mapping[str, Any], unit: float) -> str:
    gradient = row["gradient_variance"] / unit if unit else None
    values = (
        row["variance"],
        row["correlation"],
        gradient,
    )  # None: equal returns, or noise
    return " · ".join(NONE if value is None else f"{value:.2f}" for value in values)


def _series(values: Sequence[float | None]) -> str:
    return " ".join(NONE if value is None else f"{value:.2f}" for value in values)
