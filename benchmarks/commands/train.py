"""`collm train ALGORITHM --env ID`: one training run with a live display, kept in a run directory."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ..._ranges import Checked, Count
from ...agents.config import ModelConfig
from ...agents.numeric.config import NetworkConfig
from ...algorithms.config import TrainConfig
from ...algorithms.registry import algorithm_spec, algorithm_specs
from ...algorithms.runs.loggers import Sink
from ..arguments import keyword_arguments, parsed
from ..errors import check_folder, refusals

if TYPE_CHECKING:
    from ...algorithms.runs.experiment import Experiment

Settings = TypeVar("Settings", bound=TrainConfig)


@dataclass(frozen=True, kw_only=True)
class TrainArguments(Checked, Generic[Settings]):
    """Train a team in an environment: language models where agents write, perceptrons where they act by numbers."""

    env: str
    """Id of a registered environment; `collm envs` lists them."""
    env_kwargs: tuple[str, ...] = ()
    """Arguments of the environment as key=value; values may be JSON."""
    out: Path | None = None
    """Folder of the run. None: runs/<environment>-<algorithm>-<time>."""
    resume: bool = False
    """Continue the run in --out from its last checkpoint, or from the beginning where it has none. `collm resume` does
    so without the other settings."""
    init_from: Path | None = None
    """Run directory whose policies and critics the new run begins with. None: the models that the settings name."""
    log: tuple[Sink, ...] = ()
    """Places that metrics go to besides metrics.jsonl."""
    threads: Count | None = None
    """Threads of torch. None: 1 for the embedded model on a CPU, where more only wait, else torch's own choice."""
    model: ModelConfig = field(default_factory=ModelConfig)
    network: NetworkConfig = field(default_factory=NetworkConfig)
    config: Settings


def run(args: Sequence[str]) -> None:
    if not args or args[0] in ("-h", "--help"):
        print(listing())
        return
    name, *rest = args
    arguments = training(name, rest, f"train {name}")

    from ...algorithms.runs.api import check_start, default_directory  # here: help needs no torch
    from ...algorithms.runs.run import prepare_run

    with refusals():
        experiment = experiment_of(name, arguments)
        directory = arguments.out or default_directory(experiment)
        check_start(arguments.threads, arguments.log)
        check_folder(directory, "--out")
        prepare_run(experiment, directory, resume=arguments.resume, init_from=arguments.init_from)
    carried_out(
        experiment,
        directory,
        resume=arguments.resume,
        init_from=arguments.init_from,
        threads=arguments.threads,
        is_prepared=True,
        sinks=arguments.log,
    )


def training(algorithm: str, args: Sequence[str], command: str) -> TrainArguments[Any]:
    """What is asked for after the algorithm's name."""
    with refusals():
        settings = algorithm_spec(algorithm).config
    args = ["--num-updates" if word == "--steps" else word for word in args]
    kind: Any = TrainArguments[settings]  # type: ignore[valid-type]  # one class of arguments for each algorithm
    arguments: TrainArguments[Any] = parsed(kind, command, args)
    return arguments


def experiment_of(algorithm: str, arguments: TrainArguments[Any]) -> Experiment:
    """The experiment that arguments ask for."""
    from ...algorithms.runs.experiment import Experiment  # here: help needs no torch

    return Experiment(
        algorithm=algorithm,
        config=arguments.config,
        env=arguments.env,
        env_kwargs=keyword_arguments(arguments.env_kwargs),
        model=arguments.model,
        network=arguments.network,
    )


def carried_out(experiment: Experiment, directory: Path, **options: Any) -> None:
    """Train, with the options of `train_experiment`; exit with the signal's status where one stopped the run."""
    from ...algorithms.runs.api import train_experiment  # here: help needs no torch
    from ...algorithms.runs.stopping import Stopped

    try:
        train_experiment(experiment, directory, **options)
    except Stopped as stopped:
        print(stopped, file=sys.stderr)
        raise SystemExit(stopped.status) from stopped


def listing() -> str:
    """What `collm train` prints: the algorithms, a line each."""
    specs = algorithm_specs()
    width = max(len(spec.name) for spec in specs) + 2
    lines = [f"  {spec.name:<{width}}{spec.summary}".rstrip() for spec in specs]
    return "\n".join(
        [
            "usage: collm train ALGORITHM --env ID …",
            "",
            "algorithms:",
            *lines,
            "",
            "`collm train ALGORITHM --help` explains all options.",
        ]
    )
