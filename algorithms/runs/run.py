"""Training run: the trainer's updates, evaluations, logs and checkpoints."""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from ..._json import explained_content
from ..._ownership import sync
from ..._progress import Phase, observing, phase
from ...agents.core import SMALL_LEARNING_RATE, Policy
from ...envs.registration.turn_limit import watched_turns
from ...envs.views.game_tree import GameTree
from ..algorithm import warmup_of
from ..config import ActorCriticConfig
from ..distribution.group import current
from ..learning.credit import Credit
from ..learning.rewards import RewardProcessor
from ..learning.trainer import Trainer
from ..rollout.collector import RolloutCollector
from ..rollout.episode import Episode
from .assembly.experiment import EVAL_EPISODES, MAX_DEFAULT_ENVS, Experiment
from .assembly.trainers import CriticSource
from .assembly.trust import run_command, save_settings
from .checkpoint import (
    RECORDS,
    Checkpoint,
    StartingWeights,
    check_start,
    data_digests,
    has_checkpoint,
    newest_checkpoint,
    newest_update,
    save_checkpoint,
    save_models,
    tidy,
)
from .evaluation import Evaluated, evaluate, evaluation_metrics
from .exploitability import exploitability, game_tree
from .files import JsonLines, cut_lines, explained, only_one, read_config, read_lines, tentative
from .folder import PICTURES, changes, check_is_free, clear, prepare_directory
from .loggers import Callback, LogConfig, Logger, make_loggers
from .loggers.callbacks import LearningWatch, Notice, as_callback
from .records import episode_records, failures_kept, keep_failure
from .stopping import StopAsked, Stopped, StopSignals

LOG = logging.getLogger(__name__)
HIGH_LEARNING_RATE = 1e-2  # Learning rate of AdamW above which a notice is printed for every model
HIGH_RATIO = 1_000  # A notice is also printed if a learning rate exceeds the default of its model by this factor


def prepare_run(
    experiment: Experiment, directory: Path, *, resume: bool = False, init_from: Path | None = None
) -> None:
    """Check the settings and the folder of a run before models are loaded.

    With `resume`, only settings in `folder.FREE` may differ from the saved settings. Otherwise the folder must not
    contain a run that has a checkpoint. A new run may start with the policies and critics of the run in `init_from`.
    Raises `ValueError` or `OSError` if the experiment cannot run or the folder cannot be used.
    """
    experiment.check()
    if init_from is not None:
        if resume:
            raise ValueError("init_from is for new runs, and resume=True continues a run; omit either")
        check_start(init_from)

    def prepare_folder() -> None:
        check_directory(experiment, directory, resume=resume)
        with tentative(directory):
            prepare_directory(directory)

    current().by_writer(prepare_folder)


def check_directory(experiment: Experiment, directory: Path, *, resume: bool) -> None:
    """Raise an error if a new run cannot use a folder, or if its run cannot be resumed with these settings."""
    experiment = experiment.resolved()
    if not resume:
        check_is_free(directory, experiment.to_json())
    elif not directory.is_dir():
        raise FileNotFoundError(f"{directory} contains no run: the folder does not exist; give the folder of a run")
    elif has_checkpoint(directory):
        _changed(directory, experiment)


def run_experiment(experiment: Experiment, directory: Path, *, resume: bool = False, **options: Any) -> Trainer:
    prepare_run(experiment, directory, resume=resume)
    return run_prepared(experiment, directory, resume=resume, **options)


def run_prepared(
    experiment: Experiment,
    directory: Path,
    *,
    resume: bool = False,
    init_from: Path | None = None,
    log: LogConfig | None = None,
    named: Collection[str] = (),
    on_notice: Notice = LOG.warning,
    stop: StopSignals | None = None,
    policies: Mapping[str, Policy] | None = None,
    critics: CriticSource | None = None,
    reward_processor: RewardProcessor | None = None,
    loggers: Sequence[Logger | Callback] = (),
) -> Trainer:
    """Train, and write the run's folder. Call `prepare_run` first. Only rank 0 writes files.

    Args:
        experiment: experiment to run.
        directory: folder of the run.
        resume: continue from the newest valid checkpoint. Log lines after the checkpoint are deleted.
        init_from: folder of a run whose policies and critics a new run starts with.
        log: services that metrics are sent to, in addition to `metrics.jsonl`.
        named: names of settings that the user wrote, for notices about settings without effect.
        on_notice: function that is called with notices about resuming, unusual settings, and runs that cannot learn.
        stop: signals that stop the run after the current decoding step or micro-batch, with a checkpoint of the last
            complete update. The interrupted evaluation or update is repeated on resume. With several ranks, with
            `max_staleness`, and if the learning models are too large for a copy, learning is completed first.
        policies: see `Experiment.make_trainer`, also for `critics` and `reward_processor`.
        loggers: callbacks, or objects with `log` and `close`, called on rank 0.

    Raises:
        Stopped: if a signal stopped the run; it can be resumed.
        RunFolderError: if the folder is in use or cannot be written.
        FloatingPointError: if a weight or optimizer state is not finite.
    """
    group, experiment = current(), experiment.resolved()
    with explained(directory, lambda: _advice(directory)), ExitStack() as stack:
        # 1. Lock the folder, and load the checkpoint or starting weights.
        if group.is_writer:
            stack.enter_context(only_one(directory))
        if not resume:
            group.by_writer(lambda: check_is_free(directory, experiment.to_json()))
        checkpoint = newest_checkpoint(directory) if resume else None
        start = StartingWeights.of_run(init_from) if init_from is not None else None
        if resume and start is None:
            start = StartingWeights.kept_in(directory)
        # 2. Make the trainer, and the collector of evaluations.
        for line in experiment.notices(named) if group.is_writer else ():
            on_notice(line)
        trainer = experiment.make_trainer(
            policies=policies, critics=critics, reward_processor=reward_processor, start=start
        )
        stack.callback(trainer.close)
        num_held_out = experiment.config.eval_num_samples or EVAL_EPISODES
        vector = experiment.make_vector("test", min(num_held_out, MAX_DEFAULT_ENVS), has_shares=True)
        stack.callback(vector.close)
        held_out = RolloutCollector(vector, trainer.collector.policies)
        # 3. Reset the folder to the checkpoint, or to an empty run.
        if checkpoint is not None:
            with explained_content(checkpoint.path):
                trainer.load_state_dict(checkpoint.trainer)
        lines = [*named_starts(experiment), *default_rates(trainer), *high_rates(trainer), *long_warmup(trainer)]
        for line in lines if group.is_writer else ():
            on_notice(line)
        rates = model_rates(trainer)
        settings = experiment.to_json() | ({"learning_rates": rates} if rates else {})
        if checkpoint is None:
            num_lines = group.by_writer(lambda: _begin(settings, directory, start, resume, on_notice))
        else:
            num_lines = group.by_writer(lambda: _rewind(experiment, settings, directory, checkpoint, on_notice))
        # 4. Train and save. The evaluation after the checkpoint's update may have been interrupted.
        evaluated = None if checkpoint is None else group.by_writer(lambda: last_evaluated(directory))
        run = _TrainingLoop(experiment, directory, trainer, held_out, num_held_out, stop, evaluated)
        if group.is_writer:
            sinks = () if log is None else log.log
            made = make_loggers(directory, sinks, settings, update=trainer.progress.update)
            run.records = {name: JsonLines(directory / name, num_lines[name]) for name in RECORDS}
            config = experiment.config
            # Logged returns are sums of environment rewards. A reward model or processor changes the learned rewards.
            learns_returns = config.reward_model is None and reward_processor is None
            watch = LearningWatch(on_notice, trainer.config.credited_reward, learns_returns=learns_returns)
            run.callbacks = [*made, watch, *map(as_callback, loggers)]
            run.on_notice = on_notice
            for callback in run.callbacks:
                stack.callback(callback.close)
            if vector.turn_limit is None:
                limit = watched_turns(None, config.eval_max_turns)
                on_notice(
                    f"{experiment.env} declares no limit of joint turns, so an episode may never end: evaluations "
                    f"truncate it after {limit:,} turns (--eval-max-turns), but training does not; for Gymnasium "
                    "environments set --env-kwargs max_episode_steps=…"
                )
        with observing(run.observe):
            run.train()
        with trainer.whole():
            group.by_writer(lambda: save_models(directory, trainer))
        return trainer


@dataclass
class _TrainingLoop:
    experiment: Experiment
    directory: Path
    trainer: Trainer
    held_out: RolloutCollector
    num_held_out: int  # episodes per evaluation and decoding mode
    stop: StopSignals | None
    evaluated: int | None  # Update of the last evaluation. None: no evaluation yet.
    # Records (file names as keys) and callbacks are empty on ranks other than 0.
    records: Mapping[str, JsonLines] = field(default_factory=dict)
    callbacks: Sequence[Callback] = ()
    on_notice: Notice | None = None

    def __post_init__(self) -> None:
        self.config, self.env = self.experiment.config, self.experiment.env
        self._saved: int | None = None  # update of the last checkpoint of this process
        self._saved_at = time.monotonic()

    @cached_property
    def _data(self) -> dict[str, str]:
        return data_digests(self.experiment.env_kwargs.get("data"))

    @cached_property
    def _game_tree(self) -> GameTree:
        with closing(self.experiment.make_env("test")) as env:
            return game_tree(env)

    def train(self) -> None:
        trainer = self.trainer
        try:
            if self._evaluate_if_due() and is_over(trainer):  # the last evaluation was interrupted
                self._save()
            while not is_over(trainer):
                current().together(self._check)
                with failures_kept(self.directory, self.env):
                    _, metrics = trainer.step(self._record_episodes)
                self._log(metrics)
                self._evaluate_if_due()
                self._save_if_due()
        except StopAsked as asked:
            self.stop, update = None, trainer.progress.update
            is_new = update == 0 and self.config.eval_on_start and self.evaluated is None  # there is nothing to save
            if self._saved != update and not is_new:
                for record in self.records.values():  # without the episodes of an update that is not complete
                    record.num_lines = cut_lines(record.path, update, record.num_lines)
                self._save()
            resume = run_command("resume", self.directory)
            raise Stopped(f"stopped after update {update}; to resume: {resume}", asked.number) from asked

    def observe(self, work: Phase) -> None:
        """Show the progress. After a stop signal, raise `StopAsked` as soon as the run can be saved."""
        if self.trainer.can_save:
            self._check()
        for callback in self.callbacks:
            callback.log_progress(work)

    def _check(self) -> None:
        if self.stop is not None:
            self.stop.check()

    def _evaluate_if_due(self) -> bool:
        """Run the evaluation after this update if it is due and missing. Returns True if the evaluation was run."""
        update, interval = self.trainer.progress.update, self.config.eval_interval
        is_due = is_over(self.trainer) or (bool(interval) and update % interval == 0)
        if update == 0:
            is_due = self.config.eval_on_start
        is_missing = is_due and update != self.evaluated
        if is_missing:
            self._evaluate()
        return is_missing

    def _save_if_due(self) -> None:
        config, update = self.config, self.trainer.progress.update
        interval_s = 60 * config.save_interval_minutes
        is_due = bool(config.save_interval) and update % config.save_interval == 0
        is_due |= bool(interval_s) and time.monotonic() - self._saved_at >= interval_s
        if is_over(self.trainer) or current().agreed(is_due):  # the clocks of ranks differ
            self._save()

    def _log(self, metrics: Mapping[str, float]) -> None:
        report_skipped(self.trainer.collector, self.directory, self.env)
        update = self.trainer.progress.update
        self._write("metrics.jsonl", lambda: [{"update": update, **metrics}])
        for callback in self.callbacks:
            callback.log(update, metrics)

    def _record_episodes(self, update: int, episodes: Sequence[Episode], credits: Mapping[str, Credit]) -> None:
        has_own = self.held_out.vector.interests != "common"
        rows = partial(episode_records, episodes, credits, has_own_returns=has_own, update=update)
        self._write("episodes.jsonl", rows)

    def _write(self, name: str, rows: Callable[[], Sequence[Mapping[str, Any]]]) -> None:
        if name in self.records:
            self.records[name].write(rows())

    def _evaluate(self) -> None:
        metrics: dict[str, float] = {}
        episodes: dict[str, Sequence[Episode]] = {}
        costs: dict[str, float] = {}
        update = self.trainer.progress.update
        for name, greedy in (("sampled", False), ("greedy", True)):
            with (
                phase(f"evaluation {f'after update {update}' if update else 'before update 1'}, {name}"),
                failures_kept(self.directory, self.env, "test"),
                self.trainer.progress.errors_annotated(self.trainer.learners),
            ):
                limit = self.config.eval_max_turns
                result = evaluate(self.held_out, self.num_held_out, greedy=greedy, max_turns=limit)
            report_skipped(self.held_out, self.directory, self.env, "test")
            if result.num_cut and self.on_notice is not None:  # the notice is printed once per run
                self.on_notice(f"evaluation after update {self.trainer.progress.update}, {name}: {result.cut_line()}")
                self.on_notice = None
            episodes[name] = result.episodes
            costs = costs or result.costs
            metrics |= evaluation_metrics(name, result)
        if "nash_conv" in self.config.eval_metrics:
            metrics["evaluation/nash_conv"] = exploitability(self.held_out.policies, self._game_tree).nash_conv
        trainer = self.trainer
        row = {"update": trainer.progress.update, "environment_steps": trainer.progress.num_turns, **metrics}
        self._write("evaluation.jsonl", lambda: [row])
        self.evaluated = trainer.progress.update
        picture = self.directory / PICTURES / f"update-{trainer.progress.update}.gif"
        evaluated = Evaluated(metrics, episodes, partial(self.experiment.make_env, "test"), picture, costs)
        for callback in self.callbacks:
            callback.log_evaluation(trainer.progress.update, evaluated)

    def _save(self) -> None:
        with phase("checkpoint"), self.trainer.whole():
            current().by_writer(self._save_checkpoint)
        self._saved, self._saved_at = self.trainer.progress.update, time.monotonic()

    def _save_checkpoint(self) -> None:
        for record in self.records.values():
            if record.num_lines:
                sync(record.path)  # before the checkpoint is written, which stores num_lines
        num_lines = {name: record.num_lines for name, record in self.records.items()}
        save_checkpoint(self.directory, self.trainer, num_lines, self._data)


def _begin(
    settings: Mapping[str, Any], directory: Path, start: StartingWeights | None, resume: bool, on_notice: Notice
) -> dict[str, int]:
    """Delete the files of a run that has no checkpoint, and write its settings. Return 0 lines for each record file."""
    had_lines = clear(directory, keeps_settings=resume)
    if resume:
        on_notice(f"{directory} has no checkpoint yet: the run starts from the beginning")
    elif had_lines:
        on_notice(f"{directory} contained a run without a checkpoint; it was deleted, and the run starts again")
    if start is not None:
        start.save(directory)
    save_settings(directory, settings)  # last, because a folder with settings is treated as a run
    return dict.fromkeys(RECORDS, 0)


def _rewind(
    experiment: Experiment, settings: Mapping[str, Any], directory: Path, checkpoint: Checkpoint, on_notice: Notice
) -> dict[str, int]:
    """Reset a run's folder to its checkpoint. Returns the number of lines per record file."""
    for damage in checkpoint.damage:
        on_notice(f"{damage}: resuming from {checkpoint.path}")
    tidy(directory, checkpoint)
    changed = _changed(directory, experiment)
    data = data_digests(experiment.env_kwargs.get("data"))
    for name in sorted(data.keys() & checkpoint.data.keys()):
        if data[name] != checkpoint.data[name]:
            on_notice(
                f"the data in {name} changed after update {checkpoint.update}; the run continues with the new data"
            )
    for name, (old, new) in changed.items():
        on_notice(f"the setting {name}: {old!r} until update {checkpoint.update}, {new!r} afterwards")
    if changed:
        save_settings(directory, settings)
    kept: dict[str, int] = {}
    for name, expected in checkpoint.num_lines.items():
        kept[name] = cut_lines(directory / name, checkpoint.update, expected)
        if kept[name] < expected:
            on_notice(
                f"{directory / name} has {kept[name]} of the {expected} lines up to update {checkpoint.update}: the "
                "missing lines are lost"
            )
    return kept


def _changed(directory: Path, experiment: Experiment) -> dict[str, tuple[Any, Any]]:
    saved = Experiment.from_json(read_config(directory))  # adds settings that the saved run does not have
    found = [each.to_json() for each in (saved, experiment)]
    warmups = {warmup_of(each.config) for each in (saved, experiment) if isinstance(each.config, ActorCriticConfig)}
    if len(warmups) == 1:  # critic_warmup=None and the default number are the same setting
        for each in found:
            each["config"]["critic_warmup"] = min(warmups)
    return changes(*found)


def _advice(directory: Path) -> str:
    update = newest_update(directory)
    if update is None:
        return "the run has no checkpoint yet; free disk space, and start the run again"
    return f"the checkpoint of update {update} is intact; free disk space, then: {run_command('resume', directory)}"


def named_starts(experiment: Experiment) -> list[str]:
    """Return a notice if the environment's start checkpoint replaces the model "tiny"."""
    given, used = experiment.model.model, experiment.team_model.model
    return [] if used == given else [f"model {given}: {used}, the start checkpoint for {experiment.env}"]


def model_rates(trainer: Trainer) -> dict[str, float]:
    """Return the default learning rate of each agent whose default differs from that of small models."""
    config = trainer.config
    has_default = config.agent_learning_rate is None
    return {
        agent: rate
        for agent, learner in trainer.learners.items()
        if has_default and agent not in config.agent_learning_rates
        if (rate := learner.optimizer.learning_rate) != SMALL_LEARNING_RATE
    }


def default_rates(trainer: Trainer) -> list[str]:
    """Return notices about default learning rates that differ from the default of small models."""
    found: dict[float, list[str]] = {}
    for agent, rate in model_rates(trainer).items():
        found.setdefault(rate, []).append(agent)
    return [
        f"learning rate of {', '.join(agents)}: {rate:g}, the default for this kind of model; change it with "
        "--agent-learning-rate (agent_learning_rate=…)"
        for rate, agents in found.items()
    ]


def high_rates(trainer: Trainer) -> list[str]:
    found: dict[tuple[str, float, float], list[str]] = {}
    for agent, learner in trainer.learners.items():
        key = ("agent_learning_rate", learner.optimizer.learning_rate, learner.policy.default_learning_rate)
        found.setdefault(key, []).append(agent)
    for critic in trainer.unique_critics:
        if critic.optimizer is not None:
            key = ("critic_learning_rate", critic.optimizer.learning_rate, ActorCriticConfig.critic_learning_rate)
            found.setdefault(key, []).append(critic.agents[0])
    return [
        f"{setting}={rate:g} of {', '.join(names)} is very high: each step of AdamW changes each weight by about "
        f"{rate:g}; {usual:g} is usual for this kind of model"
        for (setting, rate, usual), names in found.items()
        if rate > min(HIGH_LEARNING_RATE, HIGH_RATIO * usual)
    ]


def long_warmup(trainer: Trainer) -> list[str]:
    """Return a notice if only the critics learn in a quarter of the updates or more, by the default of the warm-up."""
    warmup, total = trainer.algorithm.critic_warmup, trainer.config.num_updates
    is_long = trainer.unique_critics and 4 * warmup >= total and trainer.config.critic_warmup is None
    line = f"critic_warmup: only the critics learn in the first {warmup} of {total} updates; critic_warmup=1 is less"
    return [line] if is_long else []


def last_evaluated(directory: Path) -> int | None:
    """Return the update number in the last row of `evaluation.jsonl`. None: the file has no rows."""
    path = directory / "evaluation.jsonl"
    rows = read_lines(path) if path.exists() else []
    return rows[-1].get("update") if rows else None


def report_skipped(collector: RolloutCollector, directory: Path, env: str, split: str = "train") -> None:
    for fault in collector.skipped if current().is_writer else ():
        keep_failure(directory, fault, env, split)
        warnings.warn(f"episode skipped: {fault}", RuntimeWarning, stacklevel=2)


def is_over(trainer: Trainer) -> bool:
    """Return True if a run has reached its limit of updates, environment steps or sampled tokens."""
    config, progress = trainer.config, trainer.progress
    spent = ((config.max_environment_steps, progress.num_turns), (config.max_sampled_tokens, progress.num_tokens))
    reached = any(limit is not None and used >= limit for limit, used in spent)
    return reached or progress.update >= config.num_updates
