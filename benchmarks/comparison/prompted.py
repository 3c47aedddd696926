"""Evaluation of prompted models in a comparison, which replaces the training of a run."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

from ..._progress import observing
from ...algorithms.runs.api import untrained
from ...algorithms.runs.assembly.checks import check_team
from ...algorithms.runs.assembly.experiment import EVAL_EPISODES, Experiment
from ...algorithms.runs.evaluation import evaluation_metrics
from ...algorithms.runs.files import write_config, write_file
from ...algorithms.runs.folder import prepare_directory
from ...algorithms.runs.stopping import StopSignals


def check_prompted(experiment: Experiment) -> None:
    """Raise ValueError or OSError if the models cannot play in the environment. No weights are loaded."""
    with closing(experiment.make_env("test")) as env:
        check_team(env, experiment.team_model, experiment.config.seed, learns=False)


def evaluate_prompted(experiment: Experiment, directory: Path, stop: StopSignals) -> dict[str, float]:
    """Evaluate models and write a run folder. Return the seconds and the tokens per sampled reply."""
    prepare_directory(directory)
    write_config(directory, experiment.to_json())
    config = experiment.config
    run = untrained(experiment.model, experiment.env, directory, seed=config.seed, **experiment.env_kwargs)
    row: dict[str, Any] = {"update": 0, "environment_steps": 0}
    costs: dict[str, float] = {}
    for how in ("sampled", "greedy"):
        with observing(lambda _: stop.check()):
            result = run.evaluate(
                config.eval_num_samples or EVAL_EPISODES, greedy=how == "greedy", eval_max_turns=config.eval_max_turns
            )
        row |= evaluation_metrics(how, result)
        costs = costs or result.costs
    write_file(directory / "metrics.jsonl", "")
    write_file(directory / "evaluation.jsonl", json.dumps(row) + "\n")
    return costs
