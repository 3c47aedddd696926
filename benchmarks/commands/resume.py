"""`collm resume DIR`: continue a run from its last checkpoint, or extend a finished run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from tyro.conf import Positional

from ..._extras import require
from ..._ranges import Count, CountOrZero, NotNegative
from ...algorithms.runs.files import read_config
from ...algorithms.runs.loggers.sinks import LogConfig
from ..arguments import TrustArguments, parsed
from ..errors import refusals
from .train import exit_if_stopped


@dataclass(frozen=True, kw_only=True)
class ResumeArguments(TrustArguments):
    """Continue a run from its last checkpoint, or from the beginning if it has no checkpoint. The result is the same as
    without the interruption."""

    directory: Positional[Path]
    """Run directory of `collm train`."""
    num_updates: Count | None = None
    """Number of updates of the whole run. A larger number extends the run. None: the run's value."""
    max_environment_steps: Count | None = None
    """Budget of the whole run in environment steps. None: the run's value."""
    max_sampled_tokens: Count | None = None
    """Budget of the whole run in sampled tokens. None: the run's value."""
    eval_interval: CountOrZero | None = None
    """Updates between evaluations on held-out tasks. None: the run's value."""
    save_interval: CountOrZero | None = None
    """Updates between checkpoints. None: the run's value."""
    save_interval_minutes: NotNegative | None = None
    """Minutes between checkpoints. None: the run's value."""
    num_envs: Count | None = None
    """Number of environment copies. None: the run's value."""
    num_workers: CountOrZero | None = None
    """Number of worker processes for the environment copies. None: the run's value."""
    max_batch_tokens: Count | None = None
    """Tokens per forward pass. None: the run's value."""
    device: str | None = None
    """Device of the models, such as cpu or cuda. None: the run's value."""
    threads: Count | None = None
    """Number of torch threads. None: 1 for the embedded model on a CPU (more are not faster), else torch's default."""
    logging: LogConfig = field(default_factory=LogConfig)


def run(args: Sequence[str]) -> None:
    arguments = parsed(ResumeArguments, "resume", args)
    require(*arguments.logging.log)
    with refusals():
        read_config(arguments.directory)  # raises before the slow import of torch

    from ...algorithms.distribution.launch import joined  # late import: help needs no torch
    from ...algorithms.runs.api import train_experiment
    from ...algorithms.runs.assembly.trust import load_experiment
    from ...algorithms.runs.run import prepare_run

    directory = arguments.directory
    with joined():
        with refusals():
            saved = load_experiment(directory, trust=arguments.trust)
            config, model = _changed(saved.config, arguments), _changed(saved.model, arguments)
            experiment = replace(saved, config=config, model=model)
            prepare_run(experiment, directory, resume=True)
        with exit_if_stopped():
            train_experiment(
                experiment, directory, resume=True, threads=arguments.threads, is_prepared=True, log=arguments.logging
            )


def _changed(settings: Any, arguments: ResumeArguments) -> Any:
    names = [each.name for each in fields(settings) if each.name in ResumeArguments.__dataclass_fields__]
    given = {name: value for name in names if (value := getattr(arguments, name)) is not None}
    return replace(settings, **given)
