"""A training run: the trainer's steps, with evaluations, logs and files."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...agents.core import Policy
from ..learning.shaping import RewardProcessor
from ..learning.trainer import Trainer
from ..rollout.collector import RolloutCollector
from .checkpoint import (
    check_checkpoint,
    load_checkpoint,
    prepare_directory,
    read_config,
    save_checkpoint,
    save_models,
    write_config,
)
from .evaluation import evaluate
from .experiment import MAX_DEFAULT_ENVS, Experiment
from .loggers import JsonLines, Logger, Sink, make_loggers, read_lines
from .records import episode_records
from .replays import failures_kept, keep_failure
from .teams import CriticSource

Callback = Callable[[int, Mapping[str, float]], None]


def prepare_run(experiment: Experiment, directory: Path, *, resume: bool = False) -> None:
    """Refuse settings that would fail later, before a model is loaded; make the directory of a new run.

    Args:
        experiment: experiment to run. With `resume` it must be the one that the directory holds.
        directory: folder of the run, made if need be; it must not hold a run unless `resume` is set.
        resume: continue from the directory's checkpoint.

    Raises:
        ValueError, OSError: if the experiment cannot run or the directory cannot be used.
    """
    experiment.check()
    if not resume:
        prepare_directory(directory)
        write_config(directory, experiment.to_json())
        return
    if Experiment.from_json(read_config(directory)) != experiment:
        raise ValueError(
            f"{directory} holds another experiment; resume it with its own settings, or give another --out"
        )
    check_checkpoint(directory)


def run_experiment(experiment: Experiment, directory: Path, *, resume: bool = False, **options: Any) -> Trainer:
    """Prepare a run and train: `prepare_run`, then `run_prepared` with the same arguments and its options."""
    prepare_run(experiment, directory, resume=resume)
    return run_prepared(experiment, directory, resume=resume, **options)


def run_prepared(
    experiment: Experiment,
    directory: Path,
    *,
    resume: bool = False,
    sinks: Sequence[Sink] = (),
    on_update: Callback | None = None,
    on_evaluation: Callback | None = None,
    policies: Mapping[str, Policy] | None = None,
    critics: CriticSource | None = None,
    reward_processor: RewardProcessor | None = None,
    loggers: Sequence[Logger] = (),
) -> Trainer:
    """Train, and write a run directory.

    Args:
        experiment: experiment to run.
        directory: folder that `prepare_run` made.
        resume: continue from the directory's checkpoint; lines logged after it are dropped.
        sinks: further places for metrics besides `metrics.jsonl`.
        on_update, on_evaluation: called with the number of updates done and the metrics.
        policies: policies by agent, in place of those that the settings name.
        critics: objects or a factory, in place of those that the settings name.
        reward_processor: applied to every reward before learning.
        loggers: further objects that get every update's metrics.
    """
    trainer = experiment.make_trainer(policies=policies, critics=critics, reward_processor=reward_processor)
    if resume:
        load_checkpoint(directory, trainer)
        for name in ("metrics.jsonl", "episodes.jsonl", "evaluation.jsonl"):
            _drop_after(directory / name, trainer.update)
    every_logger = [*make_loggers(directory, sinks, experiment.to_json()), *loggers]
    episode_log = JsonLines(directory / "episodes.jsonl")
    evaluation_log = JsonLines(directory / "evaluation.jsonl")
    config = experiment.config
    held_out = _held_out(experiment, trainer)

    def record_evaluation() -> None:
        metrics: dict[str, float] = {}
        for name, greedy in (("sampled", False), ("greedy", True)):
            with failures_kept(directory, experiment.env, "test"), trainer.telling_update():
                result = evaluate(held_out, config.eval_num_samples, greedy=greedy)
            report_skipped(held_out, directory, experiment.env, "test")
            interval = result.team_return
            metrics |= {
                f"evaluation/{name}/return": interval.value,
                f"evaluation/{name}/return_low": interval.low,
                f"evaluation/{name}/return_high": interval.high,
            }
            terms = {k: v for k, v in result.metrics.items() if k.startswith(("reward/", "metric/"))}
            metrics |= {f"evaluation/{name}/{term}": value for term, value in terms.items()}
        evaluation_log.write([{"update": trainer.update, "environment_steps": trainer.num_turns, **metrics}])
        if on_evaluation is not None:
            on_evaluation(trainer.update, metrics)

    try:
        if not resume:
            record_evaluation()
        while not is_over(trainer):
            with failures_kept(directory, experiment.env):
                episodes, metrics = trainer.step()
            report_skipped(trainer.collector, directory, experiment.env)
            for logger in every_logger:
                logger.log(trainer.update, metrics)
            episode_log.write(episode_records(episodes, trainer.credits, update=trainer.update))
            if on_update is not None:
                on_update(trainer.update, metrics)
            is_last = is_over(trainer)
            if is_last or (config.eval_interval and trainer.update % config.eval_interval == 0):
                record_evaluation()
            if config.save_interval and (is_last or trainer.update % config.save_interval == 0):
                save_checkpoint(directory, trainer)
        save_models(directory, trainer)
    finally:
        for logger in every_logger:
            logger.close()
        trainer.collector.vector.close()
        held_out.vector.close()
    return trainer


def report_skipped(collector: RolloutCollector, directory: Path, env: str, split: str = "train") -> None:
    """Keep and tell the faults of episodes that were given up."""
    for fault in collector.skipped:
        keep_failure(directory, fault, env, split)
        warnings.warn(f"skipped: {fault}", RuntimeWarning, stacklevel=2)


def is_over(trainer: Trainer) -> bool:
    """Whether a run has used up its updates, environment steps or sampled tokens."""
    config = trainer.config
    spent = ((config.max_environment_steps, trainer.num_turns), (config.max_sampled_tokens, trainer.num_tokens))
    reached = any(limit is not None and used >= limit for limit, used in spent)
    return reached or trainer.update >= config.num_updates


def _held_out(experiment: Experiment, trainer: Trainer) -> RolloutCollector:
    num_envs = min(experiment.config.eval_num_samples, MAX_DEFAULT_ENVS)
    return RolloutCollector(experiment.make_vector("test", num_envs, has_shares=True), trainer.collector.policies)


def _drop_after(path: Path, update: int) -> None:
    """Drop the lines after an update: a resumed run writes them again."""
    if not path.exists():
        return
    rows: list[dict[str, Any]] = [row for row in read_lines(path) if row["update"] <= update]
    kept = path.with_suffix(".new")
    kept.unlink(missing_ok=True)
    JsonLines(kept).write(rows)
    os.replace(kept, path)
