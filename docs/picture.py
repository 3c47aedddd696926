"""`python docs/picture.py` trains teams and draws the picture of the README: before, after, and the curve between.

A minute or two on two cores. Of 64 held-out episodes, sampled, the one with the median return is shown.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import collm
from collm.algorithms.rollout.episode import Episode
from collm.envs import messages_of

ENV = "collm/MiniWriting-v2"
SEEDS = (0, 1, 2)
SETTINGS: dict[str, Any] = {"critic_warmup": 2, "max_new_tokens": 48}
FILE = Path(__file__).with_name("images") / "learning_curves.png"
WIDTH = 47


def main() -> None:
    with TemporaryDirectory() as folder:
        runs = [
            collm.train("maac", ENV, out=Path(folder) / str(seed), seed=seed, num_updates=40, **SETTINGS)
            for seed in SEEDS
        ]
        start = collm.train("maac", ENV, out=Path(folder) / "start", num_updates=3, agent_learning_rate=0.0, **SETTINGS)
        before, after = (median(run.evaluate(64).episodes) for run in (start, runs[0]))
        draw([run.metrics for run in runs], before, after)


def median(episodes: Sequence[Episode]) -> Episode:
    return sorted(episodes, key=lambda episode: episode.team_return)[len(episodes) // 2]


def draw(runs: list[list[dict[str, Any]]], before: Episode, after: Episode) -> None:
    figure = Figure(figsize=(11, 3.2), layout="constrained")
    left, middle, right = figure.subplots(1, 3, width_ratios=[1, 1, 1])
    show(left, "before training", before)
    steps = np.mean([[row["environment_steps"] for row in run] for run in runs], axis=0)
    returns = np.array([[row["return"] for row in run] for run in runs])
    middle.plot(steps, returns.mean(axis=0), color="#00796b", lw=2)
    middle.fill_between(steps, returns.min(axis=0), returns.max(axis=0), alpha=0.2, color="#00796b", lw=0)
    middle.set(
        title=f"{ENV.removeprefix('collm/')}, MAAC, {len(runs)} seeds", xlabel="joint turns", ylabel="team return"
    )
    middle.set_ylim(0, 1)
    middle.grid(alpha=0.3)
    middle.spines[["top", "right"]].set_visible(False)
    show(right, "after training", after)
    figure.savefig(FILE, dpi=120)


def show(axes: Axes, title: str, episode: Episode) -> None:
    """An episode as text: the post, and what each of the writers made of it."""
    axes.set_axis_off()
    first = next(iter(episode.tracks.values()))[0]
    parts = [("task", messages_of(first.observation)[-1].content.rpartition("\n")[0])]
    parts += [(name, str(track[0].completion.action)) for name, track in episode.tracks.items()]
    axes.set_title(f"{title}: return {episode.team_return:.2f} (median)")
    place = 0.98
    for name, text in parts:
        lines = textwrap.wrap(" ".join(text.split()) or "(nothing)", WIDTH)[:7]
        axes.text(0, place, name, weight="bold", size=8.5, va="top", color="#00796b")
        axes.text(0, place - 0.065, "\n".join(lines), size=7.5, va="top", family="monospace")
        place -= 0.12 + 0.06 * len(lines)


if __name__ == "__main__":
    main()
