"""Display of a training run: live panel in a terminal or notebook, plain lines elsewhere, and learning curves."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from ...._terminal import print_line, shown
from ...rollout.collector import RolloutCollector
from ..evaluation import Evaluated, agents_in, interval_in
from ..files import read_lines
from .callbacks import Callback

BARS = "▁▂▃▄▅▆▇█"
SPARKLINE_WIDTH = 60
LINE_S = 10.0  # Minimum seconds between two progress lines of an evaluation
SHOWN = {
    "return": "return",
    "entropy": "entropy, nats per token",
    "completion_tokens": "tokens per completion",
    "explained_variance": "explained variance",
    "kl_after_update": "KL of the update, nats per token",
    "grad_norm": "gradient norm",
    "logprob_error": "log-probability error",
    "tokens_per_second": "tokens per second",
    "seconds/decoding": "seconds decoding",
    "seconds/environment": "seconds in environments",
    "seconds/learning": "seconds learning",
}


def sparkline(values: Sequence[float]) -> str:
    """Return a line of block characters that plots the values. Each character is the mean of consecutive values."""
    if not values:
        return ""
    size = math.ceil(len(values) / SPARKLINE_WIDTH)
    means = [sum(values[i : i + size]) / len(values[i : i + size]) for i in range(0, len(values), size)]
    low, high = min(means), max(means)
    span = (high - low) or 1.0
    return "".join(BARS[min(len(BARS) - 1, int((mean - low) / span * len(BARS)))] for mean in means)


def progress_of(collector: RolloutCollector) -> str:
    return f"{collector.num_ended} of {collector.num_planned} episodes, {collector.num_decided:,} joint turns"


def agent_values(metrics: Mapping[str, float]) -> dict[str, float]:
    """Return the mean return of each agent. Empty if the agents have common interests."""
    return {name.removeprefix("return/"): value for name, value in metrics.items() if name.startswith("return/")}


class ProgressLines:
    """Printer of the progress of an evaluation: one line every `LINE_S` seconds."""

    def __init__(self, console: Console):
        self.console = console
        self._printed_at = time.monotonic()

    def __call__(self, name: str, collector: RolloutCollector) -> None:
        now = time.monotonic()
        if now - self._printed_at >= LINE_S:
            self._printed_at = now
            print_line(f"{name}: {progress_of(collector)}", self.console)


class TrainingDisplay(Callback):
    """Callback that shows the progress of a training: a live panel, or about 20 lines without a terminal."""

    def __init__(self, title: str, num_updates: int, console: Console):
        self.title = title
        self.console = console
        self.returns: list[float] = []
        self.metrics: Mapping[str, float] = {}
        self.num_updates = num_updates
        self.progress = Progress(
            TextColumn("update"),
            MofNCompleteColumn(),
            BarColumn(bar_width=None),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
        )
        self.task = self.progress.add_task("", total=num_updates)
        self.evaluations: list[tuple[int, Mapping[str, float]]] = []
        self._evaluating = ""
        self._evaluation_lines = ProgressLines(console)
        # In a notebook, the live display of rich needs ipywidgets.
        is_live = console.is_terminal or (console.is_jupyter and find_spec("ipywidgets") is not None)
        self.live = Live(self._panel(), console=console, refresh_per_second=4) if is_live else None

    def __enter__(self) -> TrainingDisplay:
        if self.live is not None:
            self.live.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self.live is not None:
            self.live.stop()

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self.metrics = metrics
        if "return" in metrics:
            self.returns.append(metrics["return"])
        self.progress.update(self.task, completed=step)
        if self.live is not None:
            self.live.update(self._panel())
        elif step % max(1, self.num_updates // 20) == 0 or step == self.num_updates:
            seconds = metrics["seconds/total"]
            recent = self.returns[-max(1, self.num_updates // 20) :]
            own = "".join(f"{label} {value:.3f}  " for label, value in agent_values(metrics).items())
            self.console.print(
                f"update {step:>4}/{self.num_updates}  return {sum(recent) / max(1, len(recent)):7.3f}  {own}"
                f"{seconds:6.0f} s  {metrics['tokens_per_second']:7.0f} tokens/s"
            )

    def log_progress(self, name: str, collector: RolloutCollector) -> None:
        if self.live is None:
            self._evaluation_lines(f"evaluation, {name}", collector)
        else:
            self._evaluating = f"evaluation, {name}: {progress_of(collector)}"
            self.live.update(self._panel())

    def log_evaluation(self, step: int, evaluated: Evaluated) -> None:
        self.evaluations.append((step, evaluated.metrics))
        self._evaluating = ""
        if self.live is not None:
            self.live.update(self._panel())

    def evaluation_table(self) -> Table:
        title = "return on held-out tasks, mean [95 %]"
        table = Table("after update", "sampled", "greedy", title=title, title_justify="left")
        for update, metrics in self.evaluations:
            intervals = (interval_in(metrics, f"evaluation/{how}/return") for how in ("sampled", "greedy"))
            table.add_row(str(update), *map(str, intervals))
            for agent in agents_in(metrics):
                own = [interval_in(metrics, f"evaluation/{how}/return/{agent}") for how in ("sampled", "greedy")]
                table.add_row(f"  {agent}", *map(str, own))
        return table

    def _panel(self) -> RenderableType:
        table = Table.grid(padding=(0, 2))
        found = [(label, self.metrics[name]) for name, label in SHOWN.items() if name in self.metrics]
        found += [(f"return of {agent}", value) for agent, value in agent_values(self.metrics).items()]
        found += [(name.replace("/", ": "), self.metrics[name]) for name in self.metrics if name.startswith("welfare/")]
        half = (len(found) + 1) // 2
        for i in range(half):
            row = [found[i]] + ([found[i + half]] if i + half < len(found) else [])
            table.add_row(*(cell for label, value in row for cell in (f"[dim]{label}[/]", f"{value:.4g}")))
        lines: list[RenderableType] = [self.progress]
        if self._evaluating:
            lines.append(self._evaluating)
        if self.returns:
            curve = sparkline(self.returns)
            lines.append(f"[cyan]{curve}[/]  return {min(self.returns):.3f} … {max(self.returns):.3f}")
        return Panel(Group(*lines, table), title=Text(shown(self.title)), title_align="left")


def plot_learning_curve(directory: Path, file: Path, *, title: str) -> None:
    """Plot the mean return of each update against environment steps. The suffix of `file` selects the format."""
    from matplotlib.figure import Figure  # imported here, because the import is slow

    rows = [row for row in read_lines(directory / "metrics.jsonl") if "return" in row]
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    axes.plot([row["environment_steps"] for row in rows], [row["return"] for row in rows])
    axes.set(title=title, xlabel="environment steps", ylabel="team return")
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(file, dpi=120)
