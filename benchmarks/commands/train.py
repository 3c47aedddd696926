"""`collm train ALGORITHM --env ID`: train a team with a live display, and store the run in a directory."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeVar

from ..._extras import require
from ..._json import read_json
from ..._ranges import Advanced, Also, Checked, Count, Needs, check_value
from ..._settings import settings_of, sorted_out
from ..._terminal import terminal
from ..._toml import read_toml, toml
from ...agents.config import CHAT, ModelConfig
from ...agents.numeric.config import NetworkConfig
from ...algorithms.config import TrainConfig
from ...algorithms.registry import algorithm_spec, algorithm_specs
from ...algorithms.runs.loggers.sinks import LogConfig
from ..arguments import HELP_ALL, keyword_arguments, nested_classes, option_names, parsed
from ..errors import UserError, check_folder, refusals

if TYPE_CHECKING:
    from ...algorithms.distribution.group import Group
    from ...algorithms.runs.assembly.experiment import Experiment

Settings = TypeVar("Settings", bound=TrainConfig)
LEADING = (  # the settings that `--help` shows first
    *("env", "config", "out", "model", "weights", "num_updates"),
    *("rollout_buffer_size", "agent_learning_rate", "max_new_tokens", "seed"),
)
EXAMPLES = (
    "collm train {name} --env collm/MiniWriting-v2",
    "collm train {name} --env collm/MiniBuild-v0 --env-kwargs max_turns=4 --num-updates 200 --out runs/build",
    "collm train {name} --env collm/TLDR-v2 --model Qwen/Qwen3-0.6B --weights adapters --report-to wandb",
    "collm train {name} --config runs/build/config.json --out runs/again --seed 1",
    "collm train {name} --env collm/MiniWriting-v2 --partner writer_1=reference",
)


@dataclass(frozen=True, kw_only=True)
class TrainArguments(Checked, Generic[Settings]):
    """Train a team in an environment. Agents with text actions are language models, other agents are perceptrons."""

    # Run.

    env: str
    """Environment: a registered id (`collm envs` lists them) or "module:Class"."""
    config: Path | None = None
    """File of settings: TOML, or a run's config.json. The command line overrides it. None: no file."""
    env_kwargs: tuple[str, ...] = ()
    """Arguments of the environment as key=value; values may be JSON."""
    out: Annotated[Path | None, Also("output_dir")] = None
    """Folder of the run. None: runs/<environment>-<algorithm>-<time>."""
    dry_run: bool = False
    """Print the settings as TOML for --config, with the memory plan, and exit without loading a model."""
    resume: Advanced[
        Annotated[bool, Also("resume_from_checkpoint"), Needs("--out", lambda call: call.out is not None)]
    ] = False
    """Continue the run in --out from its last checkpoint, or from the beginning if it has no checkpoint. `collm resume`
    does the same without other settings."""
    init_from: Advanced[Path | None] = None
    """Run directory from which initial policies and critics are loaded. None: the models given by the settings."""
    threads: Advanced[Count | None] = None
    """Number of torch threads. None: 1 for the embedded model on a CPU (more are not faster), else torch's default."""

    # Team and task.

    partner: Annotated[tuple[str, ...], Also("partners")] = ()
    """Agents that do not learn, as AGENT=PARTNER. PARTNER is reference, random, empty, or a model's folder or name."""
    prompts: Advanced[Path | None] = None
    """Folder of prompt templates `<agent>.txt` that replace the environment's prompts. None: no replacement."""
    reward_funcs: tuple[str, ...] = ()
    """Reward functions as package.module:name, or own for the environment's reward. Set their weights as an argument of
    the environment: `--env-kwargs 'reward_weights=[1, 0.5]'`. Default: the environment's reward."""
    logging: LogConfig = field(default_factory=LogConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    network: NetworkConfig = field(default_factory=NetworkConfig)
    settings: Settings


def run(args: Sequence[str]) -> None:
    if not args or args[0] in ("-h", "--help", HELP_ALL):
        print(listing())
        return
    name, arguments, given = training(list(args), "train")
    require(*packages_of(arguments))
    with refusals(), warnings.catch_warnings():
        from ...envs.registration.registry import spec  # late import: help needs no environment

        warnings.simplefilter("ignore")  # the run warns about an id without a version
        spec(arguments.env).check(**environment_arguments(arguments, given))  # before the slow import of torch

    from ...algorithms.distribution.launch import joined  # late import: help needs no torch
    from ...algorithms.runs.api import adapted_to_chat, check_start, default_directory, train_experiment
    from ...algorithms.runs.run import check_directory, prepare_run

    with joined() as group:
        with refusals():
            experiment = experiment_of(name, arguments, given)
            resumed = arguments.out if arguments.resume else None
            experiment = adapted_to_chat(experiment, resumed, terminal(stderr=arguments.dry_run))
            if arguments.dry_run:
                out = arguments.out or default_directory(experiment)
                check_folder(out, "--out")
                check_directory(experiment, out, resume=arguments.resume)
                print_plan(experiment, arguments, given, group, option_names(args))
                return
            directory = group.agreed(arguments.out or default_directory(experiment))
            check_start(arguments.threads, arguments.logging)
            group.by_writer(lambda: check_folder(directory, "--out"))
            prepare_run(experiment, directory, resume=arguments.resume, init_from=arguments.init_from)
        with exit_if_stopped():
            train_experiment(
                experiment,
                directory,
                resume=arguments.resume,
                init_from=arguments.init_from,
                threads=arguments.threads,
                is_prepared=True,
                log=arguments.logging,
                named=option_names(args),
            )


def print_plan(
    experiment: Experiment, arguments: TrainArguments[Any], given: Given, group: Group, named: Collection[str]
) -> None:
    """Print the memory plan as comments, and the settings as TOML. Exit with status 2 if the training does not fit."""
    from ...algorithms.memory.fitting import NoRoom  # late imports: help needs no torch
    from ..doctor import examined

    with suppress(NoRoom):  # the memory plan contains this error
        experiment.check()
    experiment = experiment.resolved()
    plan = examined(experiment, num_ranks=group.size)
    lines = [f"# memory plan: {plan['verdict']}"]
    for device in plan["devices"]:
        phases = ", ".join(f"{phase['name']} {phase['total'] / 2**30:.1f}" for phase in device["phases"])
        lines.append(f"# GiB on {device['device']}, which has {device['memory'] / 2**30:.1f}: {phases}")
    left_out = {"config", "dry_run", "env", "env_kwargs", "settings", *nested_classes(TrainArguments)}
    own = {name: value for name, value in filled(arguments).items() if name not in left_out}
    first = {"algorithm": experiment.algorithm, "env": experiment.env}  # the id with its version
    resolved = {name: getattr(experiment.config, name) for name in ("credited_reward", "eval_num_samples")}
    settings = replace(arguments.settings, **resolved)
    tables = dict(zip(PARTS, map(filled, (settings, arguments.model, arguments.network)), strict=True))
    tables["env_kwargs"] = {**given.env_kwargs, **keyword_arguments(arguments.env_kwargs)}
    lines.append(toml({**first, **own, **filled(arguments.logging), **tables}))
    if group.is_writer:
        for line in experiment.notices(named):
            print(line, file=sys.stderr)
        print(*lines, sep="\n", end="")
    if not plan["fits"]:
        raise SystemExit(2)


def packages_of(arguments: TrainArguments[Any]) -> list[str]:
    """Return the optional packages that a training needs. A missing package is reported before torch is imported."""
    packages: list[str] = [*arguments.logging.log]  # each service has the name of its package
    if any(CHAT in each for each in (arguments.model.model, *arguments.partner)):
        packages.append("openai")
    if arguments.settings.collectors is not None:
        packages.append("ray")
    return packages


def filled(settings: Any) -> dict[str, Any]:
    """Return the settings as a dict. Settings whose value and default are None are left out."""
    values = {name: (each, getattr(settings, name)) for name, each in settings_of(type(settings)).items()}
    return {name: value for name, (each, value) in values.items() if value is not None or each.default is not None}


def training(args: list[str], command: str) -> tuple[str, TrainArguments[Any], Given]:
    with refusals():
        name, rest, given = named(args)
        settings = algorithm_spec(name).config
        algorithm_spec(given.algorithm or name)  # raises for an unknown algorithm in the file
        values = values_of(given, settings)
        check_trusted(given, rest)
    arguments = parsed(
        TrainArguments,
        f"{command} {name}",
        rest,
        nested={"settings": settings},
        leading=LEADING,
        given=values,
        examples=[example.format(name=name) for example in EXAMPLES],
    )
    return name, arguments, given


def experiment_of(algorithm: str, arguments: TrainArguments[Any], given: Given) -> Experiment:
    from ...algorithms.runs.assembly.experiment import Experiment, with_partners  # late import: help needs no torch

    experiment = Experiment(
        algorithm=algorithm,
        config=arguments.settings,
        env=arguments.env,
        env_kwargs=environment_arguments(arguments, given),
        model=arguments.model,
        network=arguments.network,
    )
    return with_partners(experiment, pairs(arguments.partner)) if arguments.partner else experiment


def named(args: list[str]) -> tuple[str, list[str], Given]:
    """Return the algorithm, the remaining arguments, and the content of --config, which can name the algorithm."""
    given = given_settings(args)
    if not args[0].startswith("-") or given.path is None:
        return args[0], args[1:], given
    if given.algorithm is None:
        raise UserError(f'{given.path} has no algorithm; write algorithm = "maac", or collm train maac {CONFIG} …')
    return given.algorithm, args, given


def check_trusted(given: Given, words: Sequence[str]) -> None:
    """Raise an error if the file of --config names code to import and the command line does not name it too."""
    if given.path is None:
        return
    from ...envs.registration.registry import imports_module  # late import: help needs no environment

    judges = given.settings.get("reward_funcs") or given.env_kwargs.get("reward_funcs") or ()
    functions = judges.values() if isinstance(judges, Mapping) else judges
    for option, values in (("--env", [given.settings.get("env", "")]), ("--reward-funcs", functions)):
        code = " ".join(map(str, values))
        is_code = imports_module(code) if option == "--env" and code else ":" in code
        if is_code and not any(word.partition("=")[0] == option for word in words):
            raise UserError(
                f"{given.path} has {code!r}, which imports and runs code; if you trust it, add it to the command line: "
                f"{option} {code}"
            )


def values_of(given: Given, settings: type[TrainConfig]) -> dict[str, Any]:
    """Check the settings in the file of --config. Return a dict from setting name to value."""
    if given.path is None:
        return {}
    classes: tuple[type[Any], ...] = (settings, ModelConfig, NetworkConfig, LogConfig)
    listed = "`collm train ALGORITHM --help-all` lists them"
    tables = {"config", "settings", *nested_classes(TrainArguments)} - {"model"}  # `model` is also a setting
    for name in tables & set(given.settings):
        raise UserError(
            f"{given.path}: {name}={given.settings[name]!r} is not a setting; put settings at the top level, or in "
            "the tables [config], [model] and [network]"
        )
    *parts, own = sorted_out(given.settings, (*classes, TrainArguments), str(given.path), listed)
    for kind, part in zip(classes, parts, strict=True):
        kind(**part)  # raises for values out of range
    for name, setting in settings_of(TrainArguments).items():
        if isinstance(own.get(name), str) and "Path" in str(setting.hint):
            if not own[name]:
                raise UserError(f"{given.path}: {name} is empty; give a path, or . for this folder")
            own[name] = Path(own[name])
        if name in own:
            check_value(name, own[name], setting.hint)
    return {name: value for part in (*parts, own) for name, value in part.items()}


def environment_arguments(arguments: TrainArguments[Any], given: Given) -> dict[str, Any]:
    found = {**given.env_kwargs, **keyword_arguments(arguments.env_kwargs)}
    if arguments.prompts is not None:
        found["prompts"] = str(arguments.prompts)
    if arguments.reward_funcs:
        found["reward_funcs"] = list(arguments.reward_funcs)
    return found


def pairs(words: Sequence[str]) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for word in words:
        agent, separator, who = word.partition("=")
        if not (agent and separator and who):
            raise UserError(f"--partner takes AGENT=PARTNER, got {word!r}; write for example writer_1=reference")
        if agent in found:
            raise UserError(f"--partner gives {agent!r} two partners, {found[agent]!r} and {who!r}; give one of them")
        found[agent] = who
    return found


@contextmanager
def exit_if_stopped() -> Iterator[None]:
    """Exit with the status of the signal if a signal stops the run in the block."""
    from ...algorithms.distribution.group import current  # late import: help needs no torch
    from ...algorithms.runs.stopping import Stopped

    try:
        yield
    except Stopped as stopped:
        if current().is_writer:
            print(stopped, file=sys.stderr)
        raise SystemExit(stopped.status) from stopped


def listing() -> str:
    specs = algorithm_specs()
    width = max(len(spec.name) for spec in specs) + 2
    algorithms = "\n".join(f"  {spec.name:<{width}}{spec.summary}".rstrip() for spec in specs)
    examples = "\n".join(f"  {example.format(name='maac')}" for example in EXAMPLES)
    return (
        "usage: collm train ALGORITHM --env ID …\n       collm train --config FILE …\n\n"
        f"algorithms:\n{algorithms}\n\nexamples:\n{examples}\n\n"
        "`collm train ALGORITHM --help` shows the usual options, --help-all shows all of them."
    )


PARTS = ("config", "model", "network")  # tables in a run's config.json; settings can also be at the top level
CONFIG = "--config"


@dataclass(frozen=True)
class Given:
    """Content of the file of --config. Without this option, all fields are empty."""

    path: Path | None = None
    algorithm: str | None = None
    env_kwargs: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)  # all other settings; keys: their names


def given_settings(args: list[str]) -> Given:
    path = _named(args)
    if path is None:
        return Given()
    if not path.is_file():
        raise UserError(f"{CONFIG} {path}: there is no such file; give a TOML file, or a run's config.json")
    found = read_json(path) if path.suffix == ".json" else read_toml(path)
    algorithm, env_kwargs = found.pop("algorithm", None), found.pop("env_kwargs", {})
    if not isinstance(env_kwargs, Mapping):
        raise UserError(f"{path}: env_kwargs must be a table of names and values, got {env_kwargs!r}")
    if algorithm is not None and not isinstance(algorithm, str):
        raise UserError(f"{path}: algorithm must be text, got {algorithm!r}")
    settings: dict[str, Any] = {}
    for name, value in found.items():
        inner = value if name in PARTS and isinstance(value, Mapping) else {name: value}
        if twice := sorted(set(settings) & set(inner)):
            raise UserError(f"{path} contains {twice[0]!r} twice; remove one of them")
        settings |= inner
    plain = {name: tuple(value) if isinstance(value, list) else value for name, value in settings.items()}
    return Given(path, algorithm, env_kwargs, plain)


def _named(args: list[str]) -> Path | None:
    """Return the last value of --config in `args`. The parser reports a missing value."""
    found = None
    for word, following in zip(args, [*args[1:], None], strict=True):
        if word == CONFIG and following is not None:
            found = Path(following)
        elif word.startswith(f"{CONFIG}="):
            found = Path(word.partition("=")[2])
    return found
