"""Train teams on MiniWriting and draw the pictures of the documentation.

    python docs/picture.py             # learning curves and tables of 10 runs, 5 minutes on 2 cores
    python docs/picture.py animation   # GIF of one run: texts and curve after every 4 updates, 1 minute

Of the held-out posts, the pictures show the one with the median return after training. The curves, and a table of the
returns before and after training, are written to benchmarks/results/mini_writing.
"""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

import collm
from collm.agents.config import ModelConfig
from collm.algorithms.rollout.episode import Episode
from collm.algorithms.runs.api import untrained
from collm.algorithms.runs.evaluation import Evaluated, EvaluationResult
from collm.algorithms.runs.loggers.callbacks import Callback
from collm.benchmarks.commands.demo import ENV, SHARES
from collm.envs import messages_of
from collm.envs.games.pictures import write_gif

ALGORITHMS: Mapping[str, Mapping[str, Any]] = {"maac": {"critic_warmup": 2}, "magrpo": {}}
SEEDS = (0, 1, 2, 3, 4)
NUM_UPDATES, NUM_EPISODES = 60, 64
ROLES = {"writer_0": "writer_0, short summary", "writer_1": "writer_1, long summary"}
CURVES = {"return": ("mean team return", "#00796b"), "metric/true_sentences": ("share of true sentences", "#c25e00")}
NAMES = ("return", *(f"metric/{name}" for name in SHARES))
FILE = Path(__file__).with_name("images") / "learning_curves.png"
GIF = FILE.with_name("learning.gif")
UPDATES_PER_FRAME = 4
RESULTS = Path(__file__).parents[1] / "benchmarks" / "results" / "mini_writing"
WIDTH = 47


def main() -> None:
    with TemporaryDirectory() as folder:
        start = untrained(ModelConfig(max_new_tokens=48), ENV, folder).evaluate(NUM_EPISODES)
        runs = {
            algorithm: [
                collm.train(
                    algorithm,
                    ENV,
                    out=Path(folder) / f"{algorithm}-{seed}",
                    seed=seed,
                    num_updates=NUM_UPDATES,
                    max_new_tokens=48,
                    **settings,
                )
                for seed in SEEDS
            ]
            for algorithm, settings in ALGORITHMS.items()
        }
        curves = {algorithm: [run.metrics for run in each] for algorithm, each in runs.items()}
        ends = {algorithm: [run.evaluate(NUM_EPISODES) for run in each] for algorithm, each in runs.items()}
    write(curves, start, ends)
    shown = ends["maac"][0].episodes
    middle = sorted(range(NUM_EPISODES), key=lambda number: shown[number].team_return)[NUM_EPISODES // 2]
    draw(curves["maac"], start.episodes[middle], shown[middle])


def write(
    curves: Mapping[str, Sequence[Sequence[Mapping[str, Any]]]],
    start: EvaluationResult,
    ends: Mapping[str, Sequence[EvaluationResult]],
) -> None:
    """Write the curves as JSON lines, and a table of the held-out episodes before and after training."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    with (RESULTS / "curves.jsonl").open("w", encoding="utf-8") as file:
        for algorithm, runs in curves.items():
            for seed, run in zip(SEEDS, runs, strict=True):
                columns = {name: [round(row[name], 3) for row in run] for name in ("environment_steps", *NAMES)}
                file.write(json.dumps({"algorithm": algorithm, "seed": seed, **columns}) + "\n")
    lines = ["| | seed | return | true sentences | well-formed sentences | facts |", "|---|---|---|---|---|---|"]
    results = [("before training", "", start)]
    results += [(name, seed, end) for name, each in ends.items() for seed, end in zip(SEEDS, each, strict=True)]
    for name, seed, result in results:
        lines.append(f"| {name} | {seed} | {' | '.join(f'{result.metrics[metric]:.2f}' for metric in NAMES)} |")
    (RESULTS / "table.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def draw(runs: Sequence[Sequence[Mapping[str, Any]]], before: Episode, after: Episode) -> None:
    figure = Figure(figsize=(11, 3.2), layout="constrained")
    left, middle, right = figure.subplots(1, 3, width_ratios=[1, 1, 1])
    show(left, "before training", before)
    steps = np.mean([[row["environment_steps"] for row in run] for run in runs], axis=0)
    for name, (label, color) in CURVES.items():
        values = np.array([[row[name] for row in run] for run in runs])
        middle.plot(steps, values.mean(axis=0), color=color, lw=2, label=label)
        middle.fill_between(steps, values.min(axis=0), values.max(axis=0), alpha=0.2, color=color, lw=0)
    middle.set(title=f"{ENV.removeprefix('collm/')}, MAAC, {len(runs)} seeds", xlabel="episodes", ylim=(0, 1))
    middle.legend(frameon=False, loc="lower right", fontsize=8)
    middle.grid(alpha=0.3)
    middle.spines[["top", "right"]].set_visible(False)
    show(right, "after training", after)
    figure.savefig(FILE, dpi=120)


def show(axes: Axes, title: str, episode: Episode) -> None:
    """Show the post of an episode and the text of each writer."""
    axes.set_axis_off()
    first = next(iter(episode.tracks.values()))[0]
    parts = [("post", messages_of(first.observation)[-1].content.rpartition("\n")[0].removeprefix("post: "))]
    parts += [(ROLES[name], str(track[0].completion.action)) for name, track in episode.tracks.items()]
    axes.set_title(f"{title}: return {episode.team_return:.2f} on this post")
    place = 0.98
    for name, text in parts:
        lines = textwrap.wrap(" ".join(text.split()) or "(nothing)", WIDTH)[:7]
        axes.text(0, place, name, weight="bold", size=8.5, va="top", color="#00796b")
        axes.text(0, place - 0.065, "\n".join(lines), size=7.5, va="top", family="monospace")
        place -= 0.12 + 0.06 * len(lines)


class Evaluations(Callback):
    """Keep the sampled held-out episodes of each evaluation, by update."""

    def __init__(self) -> None:
        self.episodes: dict[int, Sequence[Episode]] = {}

    def log_evaluation(self, step: int, evaluated: Evaluated) -> None:
        self.episodes[step] = evaluated.episodes["sampled"]


def animate() -> None:
    """Train one team with MAAC and write the GIF."""
    evaluations = Evaluations()
    with TemporaryDirectory() as folder:
        collm.train(
            "maac",
            ENV,
            out=Path(folder) / "run",
            num_updates=NUM_UPDATES,
            max_new_tokens=48,
            critic_warmup=2,
            eval_interval=UPDATES_PER_FRAME,
            eval_num_samples=NUM_EPISODES,
            loggers=[evaluations],
        )
    played = evaluations.episodes
    last = played[max(played)]
    middle = sorted(range(NUM_EPISODES), key=lambda number: last[number].team_return)[NUM_EPISODES // 2]
    returns = {step: float(np.mean([episode.team_return for episode in each])) for step, each in played.items()}
    write_gif(GIF, [frame(step, played[step][middle], returns) for step in sorted(played)], fps=1.25)


def frame(update: int, episode: Episode, returns: Mapping[int, float]) -> np.ndarray:
    """Draw one picture of the GIF.

    Returns:
        [height, width, 3] bytes: the episode on the left, the held-out return up to the update on the right.
    """
    figure = Figure(figsize=(8, 3), layout="constrained", dpi=100)
    canvas = FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2, width_ratios=[1.3, 1])
    show(left, f"update {update}", episode)
    steps = [step for step in sorted(returns) if step <= update]
    right.plot(steps, [returns[step] for step in steps], color="#00796b", lw=2, marker="o", ms=4)
    right.set(
        title=f"mean return on {NUM_EPISODES} held-out posts", xlabel="update", xlim=(-2, max(returns) + 2), ylim=(0, 1)
    )
    right.grid(alpha=0.3)
    right.spines[["top", "right"]].set_visible(False)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3]


if __name__ == "__main__":
    animate() if sys.argv[1:] == ["animation"] else main()
