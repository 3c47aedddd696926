"""Display of a training run: live panel in a terminal or notebook, plain lines elsewhere, and learning curves."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from ...._progress import Phase
from ...._terminal import print_line, shown
from ..evaluation import Evaluated, agents_in, interval_in
from ..files import read_lines
from ..stopping import ASKED, StopSignals
from .callbacks import Callback

BARS = "▁▂▃▄▅▆▇█"
SPARKLINE_WIDTH = 60
FIRST_LINE_S, LINE_S = 10.0, 30.0  # Seconds before the first progress line, and between two lines
SHOWN = {
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

SHARES = {"equal_returns": "equal returns", "cut_share": "replies cut"}


def sparkline(values: Sequence[float]) -> str:
    """Return a line of block characters that plots the values. Each character is the mean of consecutive values."""
    if not values:
        return ""
    size = math.ceil(len(values) / SPARKLINE_WIDTH)
    means = [sum(values[i : i + size]) / len(values[i : i + size]) for i in range(0, len(values), size)]
    low, high = min(means), max(means)
    span = (high - low) or 1.0
    return "".join(BARS[min(len(BARS) - 1, int((mean - low) / span * len(BARS)))] for mean in means)


def agent_values(metrics: Mapping[str, float]) -> dict[str, float]:
    """Return the mean return of each agent. Empty if the agents have common interests."""
    return {name.removeprefix("return/"): value for name, value in metrics.items() if name.startswith("return/")}


class ProgressLines:
    """Observer of phases that prints their progress: one line every `LINE_S` seconds."""

    def __init__(self, console: Console):
        self.console = console
        self._next_at: float | None = None

    def __call__(self, work: Phase, more: Callable[[], str] = str) -> None:
        now = time.monotonic()
        self._next_at = now + FIRST_LINE_S if self._next_at is None else self._next_at  # not while models load
        if now >= self._next_at and work.done:
            self._next_at = now + LINE_S
            print_line(f"{work}{more()}", self.console)


class TrainingDisplay(Callback):
    """Callback that shows the progress of a training: a live panel, or plain lines without a terminal.

    Attributes:
        stop: stop signals, which the panel shows.
        work: running phases. None: no work was reported yet.
    """

    def __init__(self, title: str, num_updates: int, console: Console):
        self.title = title
        self.console = console
        self.returns: list[float] = []
        self.metrics: Mapping[str, float] = {}
        self.num_updates = num_updates
        self.stop: StopSignals | None = None
        self.work: Phase | None = None
        self.progress = Progress(
            TextColumn("update"),
            MofNCompleteColumn(),
            BarColumn(bar_width=None),
            TimeElapsedColumn(),
            TextColumn("{task.description}"),
            console=console,
        )
        self.task = self.progress.add_task("", total=num_updates)
        self.evaluations: list[tuple[int, Mapping[str, float], Mapping[str, float]]] = []
        self._lines = ProgressLines(console)
        # In a notebook, the live display of rich needs ipywidgets.
        is_live = console.is_terminal or (console.is_jupyter and find_spec("ipywidgets") is not None)
        self.live = Live(get_renderable=self._panel, console=console, refresh_per_second=4) if is_live else None

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
        if self.live is None and (step % max(1, self.num_updates // 20) == 0 or step == self.num_updates):
            seconds = metrics["seconds/total"]
            recent = self.returns[-max(1, self.num_updates // 20) :]
            own = "".join(f"{label} {value:.3f}  " for label, value in agent_values(metrics).items())
            self.console.print(
                f"update {step:>4}/{self.num_updates}  return {sum(recent) / max(1, len(recent)):7.3f}  {own}"
                f"{seconds:6.0f} s  {metrics['tokens_per_second']:7.0f} tokens/s"
                + "".join(f"  {label} {metrics[name]:.0%}" for name, label in SHARES.items() if name in metrics),
                soft_wrap=True,
            )

    def log_progress(self, work: Phase) -> None:
        self.work = work
        if self.live is None:
            self._lines(work, self._left)

    def log_evaluation(self, step: int, evaluated: Evaluated) -> None:
        self.evaluations.append((step, evaluated.metrics, self.metrics))

    def _left(self) -> str:
        """Return the expected time to the end of the training; during the first update, a lower bound."""
        for phase, left in self.work.chain() if self.work else ():
            if phase.name.startswith("update"):
                before, so_far = self.metrics.get("seconds/update", 0.0), phase.elapsed
                update_s = max(before, so_far + (left if left > 0 else 0.0))  # left may be nan
                rest = timedelta(
                    seconds=max(0, round(update_s * (self.num_updates + 1 - int(phase.name.split()[1])) - so_far))
                )
                return f" · training: {'' if before else 'more than '}{rest} left" if rest else ""
        return ""

    def evaluation_table(self) -> Table:
        title = "return on held-out tasks, mean [95 %]"
        shares = [name for name in SHARES if name in self.metrics]
        headers = ["update", "sampled", "greedy", *(SHARES[name] for name in shares)]
        table = Table(*headers, title=title, title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for update, metrics, trained in self.evaluations:
            intervals = (interval_in(metrics, f"evaluation/{how}/return") for how in ("sampled", "greedy"))
            table.add_row(
                str(update), *map(str, intervals), *(f"{trained[n]:.0%}" if n in trained else "-" for n in shares)
            )
            for agent in agents_in(metrics):
                own = [interval_in(metrics, f"evaluation/{how}/return/{agent}") for how in ("sampled", "greedy")]
                table.add_row(f"  {agent}", *map(str, own))
        return table

    def _panel(self) -> RenderableType:
        table = Table.grid(padding=(0, 2))
        shown_metrics = {"return": "return", **SHARES, **SHOWN}
        found = [(label, self.metrics[name]) for name, label in shown_metrics.items() if name in self.metrics]
        found += [(f"return of {agent}", value) for agent, value in agent_values(self.metrics).items()]
        found += [(name.replace("/", ": "), self.metrics[name]) for name in self.metrics if name.startswith("welfare/")]
        half = (len(found) + 1) // 2
        for i in range(half):
            row = [found[i]] + ([found[i + half]] if i + half < len(found) else [])
            table.add_row(*(cell for label, value in row for cell in (f"[dim]{label}[/]", f"{value:.4g}")))
        lines: list[RenderableType] = [self.progress]
        lines.append(Text(shown(f"{self.work}{self._left()}" if self.work else "loading models and environments")))
        if self.stop is not None and self.stop.number is not None:
            lines.append(Text(ASKED, style="bold"))
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
