"""`collm demo`: train two small language models to write together, offline, in about a minute."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ..._ranges import Checked, InRange, Seed
from ..._terminal import shown, terminal
from ...agents.config import ModelConfig
from ...algorithms.config import MAACConfig
from ..arguments import parsed
from ..errors import check_folder, refusals
from .evaluate import show, terms_of

if TYPE_CHECKING:
    from ...algorithms.runs.evaluation import EvaluationResult

ENV = "collm/MiniWriting-v2"
EPISODES = 32
SHARES = {"true_sentences": "true sentences", "well_formed": "well-formed sentences", "facts": "facts stated"}
"""Labels of the metrics that the demo prints. The metrics are computed separately from the reward."""


@dataclass(frozen=True, kw_only=True)
class DemoArguments(Checked):
    """Train two small language models to write together, and show an episode before and after training."""

    seed: Seed = 0
    """Seed of the run."""
    updates: Annotated[int, InRange(3)] = 60
    """Number of updates, at least 3. Only the critic learns in the first two."""
    out: Path | None = None
    """Folder of the run. None: a new folder under runs/."""


def run(args: Sequence[str]) -> None:
    arguments = parsed(DemoArguments, "demo", args)

    from ...algorithms.runs.api import CURVE_FILE, default_directory, load_run, train_experiment, untrained
    from ...algorithms.runs.assembly.experiment import Experiment  # late imports: help needs no torch
    from ...algorithms.runs.run import prepare_run

    console = terminal()
    config = MAACConfig(num_updates=arguments.updates, critic_warmup=2, seed=arguments.seed)
    chosen = Experiment(algorithm="maac", config=config, env=ENV, model=ModelConfig(max_new_tokens=48))
    directory = arguments.out or default_directory(chosen)
    with refusals():
        check_folder(directory, "--out")
        prepare_run(chosen, directory)
    console.print(
        "Two language models of 0.6 million weights read the same post of four sentences. [bold]writer_0[/] "
        "should state the first sentence, [bold]writer_1[/] the other three, each after a linking word. They do not "
        "see each other's text. True sentences of the right agent raise the reward of both; false and repeated ones "
        "lower it. A critic (MAAC) reads both texts and estimates the advantage of each reply.\n"
    )
    before = untrained(chosen.model, ENV, directory).evaluate(EPISODES)
    train_experiment(chosen, directory, console=console, is_prepared=True)
    after = load_run(directory).evaluate(EPISODES)
    show_change(console, before, after)
    console.print(
        f"learning curve: {escape(shown(directory / CURVE_FILE))}\n\n"
        f"next: collm play {ENV} --policy {escape(shown(shlex.quote(str(directory))))}\n      collm envs\n"
        f"      collm train iac --env {ENV} --help",
        soft_wrap=True,
    )


def show_change(console: Console, before: EvaluationResult, after: EvaluationResult) -> None:
    """Print mean metrics before and after training, and the episode with the median return after training."""
    results = {"before training": before, "after training": after}
    table = Table("", *results, title=f"{ENV}, {EPISODES} held-out posts: mean [95 %]", title_justify="left")
    table.add_row("return, at most 1", *(str(result.team_return) for result in results.values()))
    for name, label in SHARES.items():
        table.add_row(label, *(str(terms_of(result)[f"metric/{name}"]) for result in results.values()))
    console.print(table)
    middle = sorted(range(EPISODES), key=lambda number: after.episodes[number].team_return)[EPISODES // 2]
    for title, result in results.items():
        show(console, title, result.episodes[middle])
