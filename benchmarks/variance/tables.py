"""Cells of the bench → a Markdown page and a figure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

from matplotlib.figure import Figure

from ..markdown import markdown_table
from .bench import LEARNED

Found = Mapping[str, Any]
"""What `bench.measure` returns."""
NONE = "-"
_COLOURS = {"own": "C1", "joint": "C0", "privileged": "C2", "ideal table": "0.4", "constant": "k"}


def read_cells(folder: Path) -> list[Found]:
    """All cells in a folder, by name.

    Raises:
        FileNotFoundError: if there is none.
    """
    files = sorted(folder.glob("*.json"))
    if not files:
        raise FileNotFoundError(f"{folder} holds no cells of the bench; run some first, or give another --out")
    return [json.loads(file.read_text(encoding="utf-8")) for file in files]


def title(cell: Found) -> str:
    """A cell in words."""
    told = ", ".join(f"{key} {value}" for key, value in cell["env_kwargs"].items())
    return f"{cell['policy']}: {told}"


def page(cells: Sequence[Found]) -> str:
    """A table for all cells together, then one for each."""
    parts = [
        "# Noise of advantages and policy gradients, by critic and trace",
        "Frozen policies, no training. Variance: of the advantages, in units of the variance of returns. Correlation: "
        "with what the turn truly changed, known by branching the episode there; an estimate without bias from "
        "branches, which with few episodes may err by tenths, and above 1. Gradient: variance of an episode's "
        "policy gradient in all weights, in units of that with a constant for a baseline. The files also hold "
        "`samples`, the episodes whose mean gradient has as much variance as squared length along the true gradient; "
        "from fewer than some thousand episodes that is noise itself, so that tables leave it out.",
        "## What to expect",
        "Correlation at each critic's best trace, and the ratio of samples that it stands for, (joint / other)²: how "
        "many times fewer a centralized critic needs if the learning rate can follow.",
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
    """Best correlations of each cell, and what they promise."""
    rows = []
    for cell in cells:
        best = {critic: _best(cell, critic) for critic in ("constant", *LEARNED)}
        joint = best["joint"]
        rows.append(
            [
                title(cell),
                f"{cell['return']:.2f}",
                *(NONE if value is None else f"{value:.2f}" for value in best.values()),
                *(
                    f"{(joint / other) ** 2:.1f}" if joint is not None and other is not None and other > 0 else NONE
                    for other in (best["constant"], best["own"])
                ),
            ]
        )
    header = ["", "return", "constant", *LEARNED, "joint : constant", "joint : own"]
    return markdown_table(header, rows)


def cell_table(cell: Found) -> str:
    """Variance · correlation · gradient of each critic by trace."""
    traces = sorted({row["trace"] for row in cell["rows"]})
    unit = next(row["gradient_variance"] for row in cell["rows"] if row["critic"] == "constant")
    rows = []
    for critic in dict.fromkeys(row["critic"] for row in cell["rows"]):
        found = {row["trace"]: row for row in cell["rows"] if row["critic"] == critic}
        rows.append([critic, *(_shown(found[trace], unit) if trace in found else NONE for trace in traces)])
    return markdown_table(["variance · correlation · gradient", *(f"trace {trace:g}" for trace in traces)], rows)


def draw(cells: Sequence[Found], file: Path) -> None:
    """Correlation with the true effect by trace, a panel per cell."""
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
        constant = _best(cell, "constant")
        if constant is not None:
            axes.axhline(constant, color=_COLOURS["constant"], linewidth=1, linestyle=":", label="no critic")
        axes.set(title=f"{fill(title(cell), 44)}\nreturn {cell['return']:.2f}", xlabel="trace (GAE's lambda)")
        axes.title.set_fontsize(8)
        axes.grid(alpha=0.3)
    for axes in panels[:, 0]:
        axes.set_ylabel("correlation with the true effect")
    if panels.flat[0].lines:
        panels.flat[0].legend(frameon=False, fontsize=8)
    figure.savefig(file, dpi=120)


def _best(cell: Found, critic: str) -> float | None:
    found = [row["correlation"] for row in cell["rows"] if row["critic"] == critic and row["correlation"] is not None]
    return max(found, default=None)


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
