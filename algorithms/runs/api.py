"""The short way: `train`, `evaluate`, `load_team`.

    run = train("maac", env="collm/MiniWriting-v2", num_updates=50)
    print(run.evaluate().team_return)

`train` leaves a folder, from which `evaluate` and `load_team` take the team again.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import torch
from pettingzoo import ParallelEnv
from rich.console import Console
from transformers.utils import logging as transformers_logging

from ..._errors import UserError
from ..._json import explained_content
from ..._ownership import replaced
from ..._settings import sorted_out
from ..._terminal import shown, terminal
from ...agents.config import TINY, ModelConfig
from ...agents.core import Policy, Request
from ...agents.numeric.config import NetworkConfig
from ...agents.numeric.policy import NumericPolicy
from ...agents.registry import Seat
from ...envs.registration.registry import EnvSpec, make, register, registry, specs
from ...envs.templates import Prompts
from ..distribution.group import current
from ..distribution.launch import joined
from ..learning.rewards import RewardProcessor
from ..registry import AlgorithmSpec, algorithm_spec
from ..rollout.collector import RolloutCollector
from .assembly.checks import check_team
from .assembly.experiment import MAX_DEFAULT_ENVS, Experiment, fix_shapes, with_partners
from .assembly.policies import make_policies, playing_team, saved_team, seat_of
from .assembly.trainers import CriticSource
from .assembly.trust import load_experiment, next_commands, run_command
from .checkpoint import StartingWeights, UnfitWeightsError, has_newest_models, models_update, newest_update
from .evaluation import FIRST_EVALUATION_SEED, EvaluationResult, evaluate_on
from .loggers import Callback, LogConfig, Logger, check_sinks, read_lines
from .loggers.display import TrainingDisplay, plot_learning_curves
from .records import failures_kept
from .run import prepare_run, run_prepared
from .stopping import StopSignals

Environment: TypeAlias = str | ParallelEnv[str, Any, Any] | Callable[..., ParallelEnv[str, Any, Any]]
"""A registered id, an environment (which is copied), or what builds one."""
CURVE_FILE = "learning_curve.png"
MIN_POINTS = 3
"""Updates with a return that make a curve."""
PolicySource: TypeAlias = Mapping[str, Policy] | Callable[[Seat], Policy]
"""Policies by agent, or what makes one for an agent."""


@dataclass(frozen=True, repr=False)
class Run:
    """A training run that is done: where it lies, and who learned."""

    directory: Path
    """Folder with config.json, metrics.jsonl, episodes.jsonl, evaluation.jsonl and the saved policies."""
    experiment: Experiment
    policies: Mapping[str, Policy]
    """The team, by agent."""
    update: int | None = None
    """Updates that the team has learned from; None where the folder does not say."""

    def __repr__(self) -> str:
        """One line, as a notebook or a prompt shows it; the settings are in `experiment`."""
        known = "" if self.update is None else f", update {self.update}"
        return f"Run({str(self.directory)!r}: {self.experiment.algorithm} on {self.experiment.env}{known})"

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """Metrics of each update, in order: `return`, `policy_loss`, `entropy`, …"""
        return read_lines(self.directory / "metrics.jsonl")

    @property
    def evaluations(self) -> list[dict[str, Any]]:
        """Held-out returns before, while and after training: `evaluation/sampled/return`, …"""
        return read_lines(self.directory / "evaluation.jsonl")

    @property
    def episodes(self) -> list[dict[str, Any]]:
        """Records of all training episodes: what each agent read and wrote, rewards, values, advantages."""
        return read_lines(self.directory / "episodes.jsonl")

    def evaluate(
        self,
        num_episodes: int = 100,
        *,
        greedy: bool = False,
        split: str = "test",
        seeds: Sequence[int] | None = None,
        eval_max_turns: int | None = None,
        on_progress: Callable[[RolloutCollector], None] | None = None,
        **env_kwargs: Any,
    ) -> EvaluationResult:
        """Let the team play held-out tasks.

        Args:
            num_episodes: how many, always the same tasks in the same order.
            greedy: take the likeliest token in place of sampling.
            split: of the environment's tasks, where it has splits.
            seeds: seeds of the tasks, in place of a number of them.
            eval_max_turns: joint turns after which an episode is truncated. None: as in the run's settings.
            on_progress: called before each decision with the collector, which counts its episodes.
            env_kwargs: arguments of the environment that differ from training's.
        """
        if seeds is None:
            seeds = range(FIRST_EVALUATION_SEED, FIRST_EVALUATION_SEED + num_episodes)
        num_episodes = len(seeds)
        if num_episodes < 1:
            raise ValueError(f"num_episodes must be at least 1, got {num_episodes}")
        experiment = replace(self.experiment, env_kwargs={**self.experiment.env_kwargs, **env_kwargs})
        limit = experiment.config.eval_max_turns if eval_max_turns is None else eval_max_turns
        vector = experiment.make_vector(split, min(num_episodes, MAX_DEFAULT_ENVS), has_shares=True)
        try:
            with _threads(experiment.model, None), failures_kept(self.directory, experiment.env, split):
                collector = RolloutCollector(vector, self.policies)
                if on_progress is not None:
                    collector.before_turn = partial(on_progress, collector)
                return evaluate_on(collector, seeds, greedy=greedy, max_turns=limit)
        finally:
            vector.close()


@joined()
def train(
    algorithm: str,
    env: Environment,
    *,
    out: str | Path | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
    partners: Mapping[str, str] | None = None,
    prompts: Prompts | None = None,
    reward_funcs: Any = None,
    policies: PolicySource | None = None,
    critics: CriticSource | None = None,
    reward_processor: RewardProcessor | None = None,
    loggers: Sequence[Logger | Callback] = (),
    resume: bool = False,
    init_from: str | Path | None = None,
    progress: bool = True,
    threads: int | None = None,
    **settings: Any,
) -> Run:
    """Train a team, and leave a run directory.

    Args:
        algorithm: a registered name: "iac", "maac", "ippo", "mappo", "magrpo", …
        env: a registered id, an environment object (which is copied), or a class or function that builds one.
        out: the run's folder; None: runs/<environment>-<algorithm>-<time>.
        env_kwargs: arguments of the environment, where `env` is an id or builds one.
        partners: by agent, who sits in its seat and does not learn: "reference", "random", "empty", or a model's folder
            or name.
        prompts: templates in place of the environment's prompts, a mapping or a folder of files `<agent>.txt`.
        reward_funcs: functions that judge in place of the environment; see `collm.envs.wrappers.RewardFunctions`.
        policies: policies by agent, in place of the settings' models (those left out are made from them); or a factory.
            Trainable ones learn, others play along.
        critics: a critic of the joint history, critics by agent, or a factory, in place of the settings'.
        reward_processor: applied to every reward before learning.
        loggers: callbacks, or objects with `log(step, metrics)` and `close()` that get every update's metrics.
        resume: go on with the run in `out` from its last checkpoint.
        init_from: run whose policies and critics this one begins with.
        progress: show it, live in a terminal and a notebook, else as lines.
        threads: of torch; None: 1 for the embedded model on a CPU, where more only wait, else torch's own choice.
        settings: fields of the algorithm's settings (`num_updates=50`), of `ModelConfig` (`model="tiny"`,
            `max_new_tokens=64`), of `NetworkConfig` and of `LogConfig` (`log=("wandb",)`; `metrics.jsonl` is always
            written), also by the names that other libraries use (`learning_rate=1e-5`).

    Raises:
        UnknownAlgorithmError, UnknownEnvironmentError: naming the nearest name.
        TypeError: if there is no setting of a name; naming the nearest.
        ValueError, OSError: for settings that contradict each other, or a folder that holds a run already.
    """
    spec = algorithm_spec(algorithm)
    id, kwargs = _identified(env)
    config, model, network, log = _settings(spec, settings)
    judged = {"prompts": prompts, "reward_funcs": reward_funcs}
    kwargs = {**kwargs, **(env_kwargs or {}), **{name: each for name, each in judged.items() if each is not None}}
    experiment = Experiment(
        algorithm=algorithm,
        config=config,
        env=id,
        env_kwargs=kwargs,
        model=model,
        network=network,
    )
    if partners:
        experiment = with_partners(experiment, partners)
    if out == "":
        raise UserError("out='' is no folder; give the name of one, or out='.' for the present one")
    directory = current().agreed(Path(out) if out is not None else default_directory(experiment))
    if callable(policies):
        policies = _made(policies, experiment)
    return train_experiment(
        experiment,
        directory,
        policies=policies,
        critics=critics,
        reward_processor=reward_processor,
        loggers=loggers,
        log=log,
        resume=resume,
        init_from=None if init_from is None else Path(init_from),
        threads=threads,
        console=terminal() if progress else terminal(quiet=True),
    )


@joined()
def train_experiment(
    experiment: Experiment,
    directory: Path,
    *,
    resume: bool = False,
    threads: int | None = None,
    console: Console | None = None,
    loggers: Sequence[Logger | Callback] = (),
    is_prepared: bool = False,
    **options: Any,
) -> Run:
    """Run an experiment with a live display; print the held-out returns and where everything lies.

    Args:
        is_prepared: whether `prepare_run` was called already.
        options: those of `run_prepared`.
    """
    if not current().is_writer:
        console = terminal(quiet=True)
    console = console or terminal()
    transformers_logging.disable_progress_bar()
    check_start(threads, options.get("log"))
    if not is_prepared:
        prepare_run(experiment, directory, resume=resume, init_from=options.get("init_from"))
    title = f"{experiment.algorithm} on {experiment.env}, model {experiment.model.model}"
    with (
        _threads(experiment.model, threads),
        TrainingDisplay(title, experiment.config.num_updates, console) as display,
        StopSignals() as stop,
    ):
        trainer = run_prepared(
            experiment,
            directory,
            resume=resume,
            loggers=[display, *loggers],
            on_notice=lambda line: console.print(line, markup=False, highlight=False, soft_wrap=True),
            stop=stop,
            **options,
        )
    if display.evaluations:
        console.print(display.evaluation_table())
    if not display.metrics:
        console.print(
            f"nothing was left to do after update {trainer.progress.update}; to prolong the run: "
            f"{run_command('resume', directory, '--num-updates', str(2 * trainer.progress.update))}",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )
    console.print(f"run directory: {shown(directory)}", markup=False)
    if len(display.returns) >= MIN_POINTS and current().is_writer:
        title = f"{experiment.algorithm} on {experiment.env}"
        with replaced(directory / CURVE_FILE) as new:
            plot_learning_curves({experiment.algorithm: [directory]}, new, title=title)
        picture = directory / CURVE_FILE
        console.print(f"learning curve: {shown(picture)}", markup=False, soft_wrap=True)
    console.print(f"next: {next_commands(directory)}", markup=False, highlight=False, soft_wrap=True)
    return Run(directory, experiment, trainer.collector.policies, trainer.progress.update)


def evaluate(
    run: str | Path | Run,
    num_episodes: int = 100,
    *,
    greedy: bool = False,
    split: str = "test",
    env: Environment | None = None,
    trust: bool = False,
    **env_kwargs: Any,
) -> EvaluationResult:
    """Let a trained team play held-out tasks.

    Args:
        run: a run directory, or what `train` returned.
        num_episodes: how many, always the same tasks in the same order.
        greedy: take the likeliest token in place of sampling.
        split: of the environment's tasks, where it has splits.
        env: another environment than the one trained in; also where that one has no id of its own.
        trust: allow the folder's settings to name code, files and servers elsewhere; see docs/threat_model.md.
        env_kwargs: arguments of the environment that differ from training's.
    """
    loaded = run if isinstance(run, Run) else load_run(run, env=env, trust=trust)
    if isinstance(run, Run) and env is not None:
        loaded = replace(loaded, experiment=_in_environment(loaded.experiment, env))
    return loaded.evaluate(num_episodes, greedy=greedy, split=split, **env_kwargs)


def load_run(
    directory: str | Path, *, env: Environment | None = None, device: str | None = None, trust: bool = False
) -> Run:
    """A run from its folder, with its team as it was at the end, or at the newest checkpoint of a run that goes on.

    Args:
        directory: what `train` was given as `out`.
        env: another environment than the one trained in; also where that one has no id of its own.
        device: another device than the run's.
        trust: allow the folder's settings to name code, files and servers elsewhere; see docs/threat_model.md. With
            `env` the folder's environment is not looked at.
    """
    transformers_logging.disable_progress_bar()
    directory = Path(directory)
    experiment = load_experiment(directory, trust=trust, is_env_given=env is not None)
    if env is not None:
        experiment = _in_environment(experiment, env)
    if device is not None:
        experiment = replace(experiment, model=replace(experiment.model, device=device))
    played = make(experiment.env, **experiment.env_kwargs)
    try:
        if has_newest_models(directory):
            policies, update = saved_team(directory / "agents", played, experiment.model), models_update(directory)
            _try_networks(directory, policies, played)
        else:
            policies, update = _newest_team(directory, experiment, played), newest_update(directory)
        if experiment.config.deterministic:
            fix_shapes(policies)
        return Run(directory, experiment, policies, update)
    finally:
        played.close()


def _try_networks(directory: Path, policies: Mapping[str, Policy], env: ParallelEnv[str, Any, Any]) -> None:
    """Refuse networks that do not fit the environment's spaces, found by one decision of each.

    Raises:
        UserError: naming the folder of the policy.
    """
    numeric = {agent: policy for agent, policy in policies.items() if isinstance(policy, NumericPolicy)}
    observations = env.reset(seed=0)[0] if numeric else {}
    for agent, policy in numeric.items():
        if agent in observations:  # others act later
            with explained_content(directory / "agents" / agent):
                policy.act([Request(agent, observations[agent], (0, 0, 0, 0))], greedy=True)


def _newest_team(directory: Path, experiment: Experiment, env: ParallelEnv[str, Any, Any]) -> dict[str, Policy]:
    """The team of a run's newest checkpoint."""
    model = replace(experiment.team_model, server=None)
    policies = make_policies(experiment.make_algorithm(), env, model, experiment.network)
    try:
        StartingWeights.of_run(directory).give_policies(policies)
    except UnfitWeightsError as error:  # policies that were given as objects
        raise UserError(
            f"{directory} was stopped before its end, and only the end writes a team of other models than its settings "
            f"name; to go on: {run_command('resume', directory)}"
        ) from error
    return policies


def untrained(
    model: ModelConfig, env: Environment, directory: str | Path = ".", *, seed: int = 0, **env_kwargs: Any
) -> Run:
    """Models that were never trained here, as a run that can be evaluated.

    Args:
        model: settings of the models; names may be folders, hub names, registered policies, or chat servers' models.
        env: environment that they play.
        directory: where episodes are kept that an environment fails in.
        seed: draws weights that a registered policy makes anew.
        env_kwargs: arguments of the environment.

    Raises:
        UserError, OSError: if a model is not there or cannot be used, or the agents do not write.
    """
    id, kwargs = _identified(env)
    spec = algorithm_spec("mareinforce")  # no one learns; it is the rule that asks least of the models
    experiment = Experiment(
        algorithm=spec.name, config=spec.config(), env=id, env_kwargs={**kwargs, **env_kwargs}, model=model
    )
    played = experiment.make_env()
    try:
        check_team(played, experiment.team_model, seed, learns=False)
        return Run(Path(directory), experiment, playing_team(played, experiment.team_model, seed))
    finally:
        played.close()


def load_team(directory: str | Path, *, device: str | None = None, trust: bool = False) -> dict[str, Policy]:
    """The policies of a run, by agent.

    Args:
        directory: what `train` was given as `out`.
        device: another device than the run's.
        trust: allow the folder's settings to name code, files and servers elsewhere; see docs/threat_model.md.
    """
    return dict(load_run(directory, device=device, trust=trust).policies)


def default_directory(experiment: Experiment) -> Path:
    """A new folder under runs/, named after what runs and when."""
    name = experiment.env.split("/")[-1].replace(":", ".")
    return Path("runs") / f"{name}-{experiment.algorithm}-{datetime.now():%Y%m%d-%H%M%S}"


def _settings(spec: AlgorithmSpec, given: Mapping[str, Any]) -> tuple[Any, ModelConfig, NetworkConfig, LogConfig]:
    """Settings by keyword, sorted into the classes that declare them."""
    classes: tuple[type[Any], ...] = (spec.config, ModelConfig, NetworkConfig, LogConfig)
    listed = f"`collm train {spec.name} --help-all` lists them"
    parts = sorted_out(given, classes, f"the algorithm {spec.name!r}", listed)
    config, model, network, log = (kind(**part) for kind, part in zip(classes, parts, strict=True))
    return config, model, network, log


def _identified(env: Environment) -> tuple[str, dict[str, Any]]:
    """The id and the arguments under which an environment is made; what has no id is registered without a version."""
    if isinstance(env, str):
        return env, {}
    if isinstance(env, ParallelEnv):
        spec = vars(env).get("spec")  # its own: a wrapper or a view would pass on that of the environment inside
        if isinstance(spec, EnvSpec) and registry.get(spec.id) is not None:
            return spec.id, dict(spec.kwargs)
        return _registered(type(env).__name__, partial(deepcopy, env)), {}
    if not callable(env):
        raise TypeError(f"env must be an id, an environment, or what builds one, got {env!r}")
    module, name = getattr(env, "__module__", None), getattr(env, "__qualname__", "<")
    if module not in (None, "__main__") and getattr(sys.modules.get(str(module)), name, None) is env:
        return next((each.id for each in specs() if _is_entry_point(env, each)), f"{module}:{name}"), {}
    return _registered(name.rpartition(".")[2].strip("<>"), env), {}


def _is_entry_point(env: Any, registered: EnvSpec) -> bool:
    """Whether an id stands for a class or function as it is, so that a run's settings can name the id."""
    path = f"{env.__module__}:{env.__qualname__}"
    is_bare = not registered.kwargs and registered.max_turns is None
    return is_bare and registered.entry_point in (env, path)


def _registered(name: str, build: Callable[..., Any]) -> str:
    """An id for what can be made in this process alone."""
    cleaned = "".join(letter for letter in name if letter.isalnum() or letter == "_") or "environment"
    return register(f"unregistered/{cleaned}-v0", build, replace=True).id


def _in_environment(experiment: Experiment, env: Environment) -> Experiment:
    id, kwargs = _identified(env)
    return replace(experiment, env=id, env_kwargs=kwargs)


def _made(factory: Callable[[Seat], Policy], experiment: Experiment) -> dict[str, Policy]:
    """A policy for each agent."""
    env = make(experiment.env, **experiment.env_kwargs)
    algorithm = experiment.make_algorithm()
    try:
        return {agent: factory(seat_of(env, agent, experiment.team_model, algorithm)) for agent in env.possible_agents}
    finally:
        env.close()


def check_start(threads: int | None, log: LogConfig | None) -> None:
    """Refuse what a run needs besides its experiment and does not have, before its folder is made.

    Raises:
        UserError: if a number of threads is wrong, or if a sink's package is missing.
    """
    if threads is not None and threads < 1:
        raise UserError(f"threads must be at least 1, or None for the best choice, got {threads}")
    check_sinks(() if log is None else log.log)


@contextmanager
def _threads(model: ModelConfig, threads: int | None) -> Iterator[None]:
    """Set torch's threads for a while; a small model is done before a second thread has woken."""
    before = torch.get_num_threads()
    if threads is not None:
        torch.set_num_threads(threads)
    elif TINY in model.model.split(",") and (model.device == "cpu" or not torch.cuda.is_available()):
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
