"""`collm demo`: two small language models learn to write together, in a minute or two and offline."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.markup import escape

from ..._ranges import Checked, InRange, Seed
from ..._terminal import shown, terminal
from ...agents.config import ModelConfig
from ...algorithms.config import MAACConfig
from ..arguments import parsed
from ..errors import check_folder, refusals
from .evaluate import EvaluateArguments, evaluate_teams

if TYPE_CHECKING:
    from ...algorithms.runs.assembly.experiment import Experiment

ENV = "collm/MiniWriting-v1"


@dataclass(frozen=True, kw_only=True)
class DemoArguments(Checked):
    """Watch two small language models learn to write together."""

    seed: Seed = 0
    """Seed of everything random."""
    updates: Annotated[int, InRange(3)] = 40
    """Number of updates, at least 3; in the first two only the critic learns."""
    out: Path | None = None
    """Folder of the run. None: a new one under runs/."""


def experiment(seed: int, updates: int) -> Experiment:
    """A team of two embedded models, trained by multi-agent actor-critic."""
    from ...algorithms.runs.assembly.experiment import Experiment  # here, and below: help needs no torch

    config = MAACConfig(num_updates=updates, critic_warmup=2, seed=seed)
    return Experiment(algorithm="maac", config=config, env=ENV, model=ModelConfig(max_new_tokens=48))


def run(args: Sequence[str]) -> None:
    arguments = parsed(DemoArguments, "demo", args)

    from ...algorithms.runs.api import CURVE_FILE, default_directory, train_experiment
    from ...algorithms.runs.loggers.lines import read_lines
    from ...algorithms.runs.run import prepare_run

    console = terminal()
    chosen = experiment(arguments.seed, arguments.updates)
    directory = arguments.out or default_directory(chosen)
    with refusals():
        check_folder(directory, "--out")
        prepare_run(chosen, directory)
    console.print(
        "Two language models of 0.6 million weights write about the same post: [bold]writer_0[/] a short summary, "
        "[bold]writer_1[/] a long one.\nNeither sees the other's text; both are paid alike: for the right difference "
        "in length, words in common,\nlinking words, and staying with the post. A critic that reads everything "
        "(MAAC) tells both how much better a turn went than expected.\n"
    )
    train_experiment(chosen, directory, console=console, is_prepared=True)
    returns = [row["return"] for row in read_lines(directory / "metrics.jsonl")]
    tenth = max(1, len(returns) // 10)
    first, last = sum(returns[:tenth]) / tenth, sum(returns[-tenth:]) / tenth
    evaluate_teams(EvaluateArguments(directories=(directory,), episodes=32), console)
    console.print(
        f"\n[bold]mean return: first tenth {first:.3f}, last tenth {last:.3f}: {last / first:.2f} times[/]\n"
        f"the curve: {escape(shown(directory / CURVE_FILE))}\n\n"
        f"next: collm play {ENV} --policy {escape(shown(shlex.quote(str(directory))))}\n      collm envs\n"
        f"      collm train iac --env {ENV} --help",
        soft_wrap=True,
    )
