"""`collm train ALGORITHM --env ID`: a run, with a live display, in a run directory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch
from rich.console import Console
from rich.table import Table
from transformers.utils import logging as transformers_logging

from ..agents.loading import TINY, ModelConfig
from ..agents.numeric_config import NetworkConfig
from ..algorithms import ALGORITHMS
from ..algorithms.config import TrainConfig
from ..algorithms.experiment import Experiment
from ..algorithms.loggers import Sink
from ..algorithms.run import prepare_run, run_prepared
from ..algorithms.trainer import Trainer
from .arguments import keyword_arguments, parsed
from .cli import UserError, refusals
from .progress import TrainingDisplay

Settings = TypeVar("Settings", bound=TrainConfig)


@dataclass(frozen=True, kw_only=True)
class TrainArguments(Generic[Settings]):
    """Train a team of language models in an environment."""

    env: str
    """A registered id; `collm envs` lists them."""
    env_kwargs: tuple[str, ...] = ()
    """The environment's arguments, as key=value; values may be JSON."""
    out: Path | None = None
    """The run's folder; None: runs/<environment>-<algorithm>-<time>."""
    resume: bool = False
    """Go on with the run in --out from its last checkpoint."""
    log: tuple[Sink, ...] = ()
    """Where metrics go besides metrics.jsonl."""
    threads: int | None = None
    """Threads of torch; None: 1 for the embedded model on a CPU, where more only wait, else torch's own choice."""
    model: ModelConfig = field(default_factory=ModelConfig)
    network: NetworkConfig = field(default_factory=NetworkConfig)
    config: Settings


def run(args: Sequence[str]) -> None:
    transformers_logging.disable_progress_bar()
    if not args or args[0] in ("-h", "--help"):
        print(f"usage: collm train ALGORITHM --env ID …\n\nalgorithms: {', '.join(ALGORITHMS)}\n")
        print("`collm train ALGORITHM --help` explains all options.")
        return
    name, *rest = args
    if name not in ALGORITHMS:
        raise UserError(f"there is no algorithm {name!r}; choose one of {', '.join(ALGORITHMS)}")
    settings = ALGORITHMS[name][1]
    rest = ["--num-updates" if word == "--steps" else word for word in rest]
    kind: Any = TrainArguments[settings]  # type: ignore[valid-type]  # one class of arguments for each algorithm
    arguments: TrainArguments[Any] = parsed(kind, f"train {name}", rest)
    with refusals():
        experiment = Experiment(
            algorithm=name,
            config=arguments.config,
            env=arguments.env,
            env_kwargs=keyword_arguments(arguments.env_kwargs),
            model=arguments.model,
            network=arguments.network,
        )
    train(experiment, arguments.out, resume=arguments.resume, sinks=arguments.log, threads=arguments.threads)


def train(
    experiment: Experiment,
    out: Path | None,
    *,
    resume: bool = False,
    sinks: Sequence[Sink] = (),
    threads: int | None = None,
    console: Console | None = None,
) -> Trainer:
    """Run an experiment with a display; print what it reached."""
    console = console or Console()
    directory = out or default_directory(experiment)
    with refusals():
        prepare_run(experiment, directory, resume=resume)
    choose_threads(experiment.model, threads)
    title = f"{experiment.algorithm} on {experiment.env}, model {experiment.model.model}"
    evaluations: list[tuple[int, Mapping[str, float]]] = []
    with TrainingDisplay(title, experiment.config.num_updates, console) as display:
        trainer = run_prepared(
            experiment,
            directory,
            resume=resume,
            sinks=sinks,
            on_update=display.update,
            on_evaluation=lambda update, metrics: evaluations.append((update, metrics)),
        )
    console.print(evaluation_table(evaluations))
    console.print(f"run directory: {directory}")
    return trainer


def choose_threads(model: ModelConfig, threads: int | None) -> None:
    """Set torch's threads; a small model is done before a second thread has woken."""
    if threads is not None:
        torch.set_num_threads(threads)
    elif TINY in model.model.split(",") and (model.device == "cpu" or not torch.cuda.is_available()):
        torch.set_num_threads(1)


def default_directory(experiment: Experiment) -> Path:
    """A new folder under runs/, named after what runs and when."""
    name = experiment.env.split("/")[-1]
    return Path("runs") / f"{name}-{experiment.algorithm}-{datetime.now():%Y%m%d-%H%M%S}"


def evaluation_table(evaluations: Sequence[tuple[int, Mapping[str, float]]]) -> Table:
    """Held-out returns before, between and after."""
    table = Table(
        "after update", "sampled", "greedy", title="return on held-out tasks, mean [95 %]", title_justify="left"
    )
    for update, metrics in evaluations:
        cells = []
        for how in ("sampled", "greedy"):
            mean, low, high = (metrics[f"evaluation/{how}/return{end}"] for end in ("", "_low", "_high"))
            cells.append(f"{mean:.3f} [{low:.3f}, {high:.3f}]")
        table.add_row(str(update), *cells)
    return table
