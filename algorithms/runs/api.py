"""Functions to train and evaluate a team in one call.

    run = train("maac", env="collm/MiniWriting-v2", num_updates=50)
    print(run.evaluate().team_return)

`train` writes a run folder. `evaluate` loads the team from this folder.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import torch
from pettingzoo import ParallelEnv
from rich.console import Console

from ..._errors import UserError
from ..._json import explained_content
from ..._ownership import replaced
from ..._settings import sorted_out
from ..._terminal import print_line, shown, terminal
from ...agents.config import TINY, ModelConfig
from ...agents.core import Policy, Request
from ...agents.numeric.config import NetworkConfig
from ...agents.numeric.policy import NumericPolicy
from ...agents.registry import Seat
from ...envs.registration.registry import EnvSpec, register, registry, specs, with_explanation
from ...envs.templates import Prompts
from ..distribution.group import current
from ..distribution.launch import joined
from ..learning.rewards import RewardProcessor
from ..registry import algorithm_spec
from ..rollout.collector import RolloutCollector
from .assembly.checks import check_team
from .assembly.experiment import MAX_DEFAULT_ENVS, Experiment, fix_shapes, for_chat, with_partners
from .assembly.policies import make_policies, playing_team, saved_team, seat_of
from .assembly.trainers import CriticSource
from .assembly.trust import load_experiment, next_commands, run_command
from .checkpoint import StartingWeights, UnfitWeightsError, has_newest_models, models_update, newest_update
from .evaluation import FIRST_EVALUATION_SEED, EvaluationResult, evaluate_on
from .files import agents_folder
from .loggers import Callback, LogConfig, Logger, check_sinks, read_lines
from .loggers.display import TrainingDisplay, plot_learning_curve
from .records import failures_kept
from .run import prepare_run, run_prepared
from .stopping import StopSignals

Environment: TypeAlias = str | ParallelEnv[str, Any, Any] | Callable[..., ParallelEnv[str, Any, Any]]
"""Registered id, environment object (which is copied), or class or function that returns an environment."""
CURVE_FILE = "learning_curve.png"
PolicySource: TypeAlias = Mapping[str, Policy] | Callable[[Seat], Policy]
"""Policies as a dict with agents as keys, or a factory that makes an agent's policy."""


@dataclass(frozen=True, repr=False)
class Run:
    """Folder and trained policies of a run."""

    directory: Path
    """Folder with config.json, metrics.jsonl, episodes.jsonl, evaluation.jsonl and the saved policies."""
    experiment: Experiment
    policies: Mapping[str, Policy]
    """Policy of each agent."""
    update: int | None = None
    """Number of updates after which the policies were saved. None: unknown."""

    def __repr__(self) -> str:
        known = "" if self.update is None else f", update {self.update}"
        return f"Run({str(self.directory)!r}: {self.experiment.algorithm} on {self.experiment.env}{known})"

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """Metrics per update: `return`, `policy_loss`, `entropy`, …"""
        return read_lines(self.directory / "metrics.jsonl")

    @property
    def evaluations(self) -> list[dict[str, Any]]:
        """Metrics per evaluation on held-out tasks: `evaluation/sampled/return`, …"""
        return read_lines(self.directory / "evaluation.jsonl")

    @property
    def episodes(self) -> list[dict[str, Any]]:
        """Records of all training episodes: observations, replies, rewards, values and advantages of each agent."""
        return read_lines(self.directory / "episodes.jsonl")

    def evaluate(
        self,
        num_episodes: int = 100,
        *,
        greedy: bool = False,
        split: str = "test",
        seeds: Sequence[int] | None = None,
        eval_max_turns: int | None = None,
        **env_kwargs: Any,
    ) -> EvaluationResult:
        """Evaluate the team on held-out tasks.

        Args:
            num_episodes: number of tasks. The tasks and their order are fixed.
            greedy: decode greedily instead of sampling.
            split: split of the environment's tasks, if the environment has splits.
            seeds: seeds of the tasks, instead of `num_episodes`.
            eval_max_turns: joint turns after which an episode is truncated. None: the run's setting.
            env_kwargs: environment arguments that differ from training.
        """
        if seeds is None:
            seeds = range(FIRST_EVALUATION_SEED, FIRST_EVALUATION_SEED + num_episodes)
        num_episodes = len(seeds)
        if num_episodes < 1:
            raise ValueError(f"num_episodes must be at least 1, got {num_episodes}")
        experiment = replace(self.experiment, env_kwargs={**self.experiment.env_kwargs, **env_kwargs})
        limit = experiment.config.eval_max_turns if eval_max_turns is None else eval_max_turns
        with (
            experiment.make_vector(split, min(num_episodes, MAX_DEFAULT_ENVS), has_shares=True) as vector,
            torch_threads(experiment.model, None),
            failures_kept(self.directory, experiment.env, split),
        ):
            return evaluate_on(RolloutCollector(vector, self.policies), seeds, greedy=greedy, max_turns=limit)


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
    """Train a team, and write a run folder.

    Args:
        algorithm: registered name: "iac", "maac", "ippo", "mappo", "magrpo", …
        env: registered id, environment object (which is copied), or class or function that returns an environment.
        out: folder of the run. None: runs/<environment>-<algorithm>-<time>.
        env_kwargs: arguments of the environment, if `env` is an id, a class or a function.
        partners: dict of agents that do not learn. Values: "reference", "random", "empty", or a model's folder or name.
        prompts: templates that replace the environment's prompts: a mapping, or a folder of files `<agent>.txt`.
        reward_funcs: functions that replace the environment's reward; see `collm.envs.wrappers.RewardFunctions`.
        policies: dict with agents as keys, or a factory. These policies replace the models of the settings. Only
            instances of `TrainablePolicy` learn.
        critics: critic of the joint history, dict with agents as keys, or a factory. Replaces the settings' critics.
        reward_processor: function that is applied to every reward before learning.
        loggers: callbacks, or objects with `log(step, metrics)` and `close()`.
        resume: continue the run in `out` from its last checkpoint.
        init_from: folder of a run whose policies and critics are the starting weights of this run.
        progress: show progress: live in a terminal or notebook, else as lines.
        threads: torch threads. None: 1 for the embedded model on a CPU, else torch's default.
        settings: fields of the algorithm's settings (`num_updates=50`), of `ModelConfig` (`model="tiny"`,
            `max_new_tokens=64`), of `NetworkConfig` and of `LogConfig` (`log=("wandb",)`). Names that other libraries
            use are accepted as aliases (`learning_rate=1e-5`).

    Raises:
        UnknownAlgorithmError, UnknownEnvironmentError: if a name is not registered; the message suggests a name.
        TypeError: if a setting does not exist; the message suggests the most similar name.
        ValueError, OSError: if settings contradict each other, or the folder already contains a run.
    """
    spec = algorithm_spec(algorithm)
    id, kwargs = _identified(env)
    kinds: tuple[type[Any], ...] = (spec.config, ModelConfig, NetworkConfig, LogConfig)
    listed = f"`collm train {spec.name} --help-all` lists them"
    parts = sorted_out(settings, kinds, f"the algorithm {spec.name!r}", listed)
    config, model, network, log = (kind(**part) for kind, part in zip(kinds, parts, strict=True))
    judged = {"prompts": prompts, "reward_funcs": reward_funcs}
    kwargs = {**kwargs, **(env_kwargs or {}), **{name: each for name, each in judged.items() if each is not None}}
    experiment = Experiment(algorithm=algorithm, config=config, env=id, env_kwargs=kwargs, model=model, network=network)
    if partners:
        experiment = with_partners(experiment, partners)
    if out == "":
        raise UserError("out='' is not a folder; give a name, or out='.' for the current folder")
    directory = current().agreed(Path(out) if out is not None else default_directory(experiment))
    console = terminal() if progress else terminal(quiet=True)
    if policies is None:
        experiment = adapted_to_chat(experiment, directory if resume else None, console)
    if callable(policies):
        make_policy, made, team = policies, experiment.make_algorithm(), experiment.team_model
        with closing(experiment.make_env()) as played:
            policies = {agent: make_policy(seat_of(played, agent, team, made)) for agent in played.possible_agents}
    return train_experiment(
        experiment,
        directory,
        policies=policies,
        critics=critics,
        reward_processor=reward_processor,
        loggers=loggers,
        log=log,
        named=settings,
        resume=resume,
        init_from=None if init_from is None else Path(init_from),
        threads=threads,
        console=console,
    )


def adapted_to_chat(experiment: Experiment, resumed: Path | None, console: Console) -> Experiment:
    """Return the result of `for_chat`, equal on all ranks, and print its notices."""
    adapted, notices = current().agreed(for_chat(experiment, resumed))
    for line in notices if current().is_writer else ():
        print_line(line, console)
    return adapted


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
    """Run an experiment with a live display, and print the held-out returns and the folder.

    `options` are further arguments of `run_prepared`. `is_prepared` is True if `prepare_run` was already called.
    """
    screen = (console or terminal()) if current().is_writer else terminal(quiet=True)
    notice = partial(print_line, console=screen)
    check_start(threads, options.get("log"))
    if not is_prepared:
        prepare_run(experiment, directory, resume=resume, init_from=options.get("init_from"))
    title = f"{experiment.algorithm} on {experiment.env}, model {experiment.model.model}"
    with (
        torch_threads(experiment.model, threads),
        TrainingDisplay(title, experiment.config.num_updates, screen) as display,
        StopSignals(is_shown=display.live is not None) as stop,
    ):
        display.stop = stop
        trainer = run_prepared(
            experiment,
            directory,
            resume=resume,
            loggers=[display, *loggers],
            on_notice=notice,
            stop=stop,
            **options,
        )
    if display.evaluations:
        screen.print(display.evaluation_table())
    if not display.metrics:
        notice(
            f"the run was already complete after update {trainer.progress.update}; to train longer: "
            f"{run_command('resume', directory, '--num-updates', str(2 * trainer.progress.update))}"
        )
    screen.print(f"run directory: {shown(directory)}", markup=False)
    if trainer.progress.update >= 3 and current().is_writer:  # fewer points do not make a curve
        with replaced(directory / CURVE_FILE) as new:
            plot_learning_curve(directory, new, title=f"{experiment.algorithm} on {experiment.env}")
        screen.print(f"learning curve: {shown(directory / CURVE_FILE)}", markup=False, soft_wrap=True)
    notice(f"next: {next_commands(directory)}")
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
    """Evaluate a trained team on held-out tasks.

    Args:
        run: result of `train`, or the folder of a run.
        num_episodes: number of tasks. The tasks and their order are fixed.
        greedy: decode greedily instead of sampling.
        split: split of the environment's tasks, if the environment has splits.
        env: replaces the training environment. Required if the training environment has no importable id.
        trust: allow settings that refer to code, servers, or files outside the folder; see docs/threat_model.md.
        env_kwargs: environment arguments that differ from training.
    """
    loaded = run if isinstance(run, Run) else load_run(run, env=env, trust=trust)
    if isinstance(run, Run) and env is not None:
        loaded = replace(loaded, experiment=_in_environment(loaded.experiment, env))
    return loaded.evaluate(num_episodes, greedy=greedy, split=split, **env_kwargs)


def load_run(
    directory: str | Path, *, env: Environment | None = None, device: str | None = None, trust: bool = False
) -> Run:
    """Load a run from its folder. The policies are from the end of training, or from the newest checkpoint.

    Args:
        directory: folder of the run.
        env: replaces the training environment. The training environment is then not checked for trust.
        device: device of the policies. None: the run's setting.
        trust: allow settings that refer to code, servers, or files outside the folder; see docs/threat_model.md.
    """
    directory = Path(directory)
    experiment = load_experiment(directory, trust=trust, is_env_given=env is not None)
    if env is not None:
        experiment = _in_environment(experiment, env)
    if device is not None:
        experiment = replace(experiment, model=replace(experiment.model, device=device))
    with closing(experiment.make_env()) as played:
        if has_newest_models(directory):
            policies, update = saved_team(agents_folder(directory), played, experiment.model), models_update(directory)
            _try_networks(directory, policies, played)
        else:
            policies, update = _newest_team(directory, experiment, played), newest_update(directory)
        if experiment.config.deterministic:
            fix_shapes(policies)
        return Run(directory, experiment, policies, update)


def _try_networks(directory: Path, policies: Mapping[str, Policy], env: ParallelEnv[str, Any, Any]) -> None:
    """Call each network once. Raises `UserError` if a network does not fit the environment's spaces."""
    numeric = {agent: policy for agent, policy in policies.items() if isinstance(policy, NumericPolicy)}
    observations = env.reset(seed=0)[0] if numeric else {}
    for agent, policy in numeric.items():
        if agent in observations:  # agents that act only later are not checked
            with explained_content(agents_folder(directory) / agent):
                policy.act([Request(agent, observations[agent], (0, 0, 0, 0))], greedy=True)


def _newest_team(directory: Path, experiment: Experiment, env: ParallelEnv[str, Any, Any]) -> dict[str, Policy]:
    model = replace(experiment.team_model, server=None)
    policies = make_policies(experiment.make_algorithm(), env, model, experiment.network)
    try:
        StartingWeights.of_run(directory).give_policies(policies)
    except UnfitWeightsError as error:  # policies were passed as objects, and the settings describe other models
        raise UserError(
            f"the run {directory} stopped before its end, and its checkpoint does not fit the models in "
            f"config.json; resume the run, which saves the models at its end: {run_command('resume', directory)}"
        ) from error
    return policies


def untrained(
    model: ModelConfig, env: Environment, directory: str | Path = ".", *, seed: int = 0, **env_kwargs: Any
) -> Run:
    """Return a `Run` of untrained models, for an evaluation.

    Args:
        model: settings of the models: folders, hub names, registered policies, or models of chat servers.
        env: environment that the models play.
        directory: folder in which episodes are saved if the environment fails.
        seed: seed of new weights of registered policies.
        env_kwargs: arguments of the environment.

    Raises:
        UserError, OSError: if a model is missing or cannot be used, or the environment's actions are not text.
    """
    id, kwargs = _identified(env)
    spec = algorithm_spec("mareinforce")  # any algorithm, because the models are not trained
    kwargs |= env_kwargs
    experiment = Experiment(algorithm=spec.name, config=spec.config(), env=id, env_kwargs=kwargs, model=model)
    experiment, _ = for_chat(experiment)
    with closing(experiment.make_env()) as played:
        check_team(played, experiment.team_model, seed, learns=False)
        return Run(Path(directory), experiment, playing_team(played, experiment.team_model, seed))


def default_directory(experiment: Experiment) -> Path:
    name = experiment.env.split("/")[-1].replace(":", ".")
    return Path("runs") / f"{name}-{experiment.algorithm}-{datetime.now():%Y%m%d-%H%M%S}"


def _identified(env: Environment) -> tuple[str, dict[str, Any]]:
    """Return the id and arguments of an environment. An environment without an id is registered first."""
    if isinstance(env, str):
        return env, {}
    if isinstance(env, ParallelEnv):
        spec = vars(env).get("spec")  # not getattr: a wrapper would return the spec of the inner environment
        if isinstance(spec, EnvSpec) and registry.get(spec.id) is not None:
            return spec.id, dict(spec.kwargs)
        return _registered(type(env).__name__, partial(deepcopy, env)), {}
    if not callable(env):
        raise TypeError(f"env must be an id, an environment, or a class or function that returns one, got {env!r}")
    module, name = getattr(env, "__module__", None), getattr(env, "__qualname__", "<")
    if module not in (None, "__main__") and getattr(sys.modules.get(str(module)), name, None) is env:
        path = f"{module}:{name}"
        bare = (each for each in specs() if not each.kwargs and each.max_turns is None)  # ids without fixed arguments
        return next((each.id for each in bare if each.entry_point in (env, path)), path), {}
    return _registered(name.rpartition(".")[2].strip("<>"), env), {}


def _registered(name: str, build: Callable[..., Any]) -> str:
    """Register an environment factory that exists only in this process, and return the new id."""
    cleaned = "".join(letter for letter in name if letter.isalnum() or letter == "_") or "environment"
    return register(f"unregistered/{cleaned}-v0", build, replace=True).id


def _in_environment(experiment: Experiment, env: Environment) -> Experiment:
    id, kwargs = _identified(env)
    if experiment.env_kwargs.get("is_explained"):  # the models read such prompts in training
        kwargs = with_explanation(id, kwargs)
    return replace(experiment, env=id, env_kwargs=kwargs)


def check_start(threads: int | None, log: LogConfig | None) -> None:
    """Raise `UserError` if `threads` is below 1 or the package of a log service is missing."""
    if threads is not None and threads < 1:
        raise UserError(f"threads must be at least 1, or None for the default, got {threads}")
    check_sinks(() if log is None else log.log)


@contextmanager
def torch_threads(model: ModelConfig, threads: int | None) -> Iterator[None]:
    """Context manager: set the number of torch threads. The embedded model is fastest with one thread on a CPU."""
    before = torch.get_num_threads()
    if threads is not None:
        torch.set_num_threads(threads)
    elif TINY in model.model.split(",") and (model.device == "cpu" or not torch.cuda.is_available()):
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
