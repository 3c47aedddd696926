"""Learning curves of run directories, as one picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from .lines import read_lines


def plot_learning_curves(
    runs: Mapping[str, Sequence[Path]], file: Path, *, title: str = "", x: str = "environment_steps"
) -> Path:
    """Draw mean returns during training: one line per name, the mean over its runs, with their range as a band.

    Args:
        runs: run directories by the name of their curve.
        file: the picture, PNG or whatever its ending says.
        x: the metric on the horizontal axis.

    Returns:
        The file.
    """
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    for name, directories in runs.items():
        rows = [[row for row in read_lines(each / "metrics.jsonl") if "return" in row] for each in directories]
        length = min(len(run) for run in rows)
        steps = np.mean([[row[x] for row in run[:length]] for run in rows], axis=0)
        returns = np.array([[row["return"] for row in run[:length]] for run in rows])
        line = axes.plot(steps, returns.mean(axis=0), label=f"{name}, {len(rows)} seeds" if len(rows) > 1 else name)[0]
        if len(rows) > 1:
            axes.fill_between(steps, returns.min(axis=0), returns.max(axis=0), alpha=0.2, color=line.get_color())
    axes.set(title=title, xlabel=x.replace("_", " "), ylabel="team return")
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    figure.savefig(file, dpi=120)
    return file
