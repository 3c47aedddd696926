"""Suites: comparisons of algorithms on environments, as TOML files.

name = "smoke"
seeds = [0, 1, 2]
budget = {environment_steps = 640}          # or {generated_tokens = 20_000}
config = {agent_learning_rate = 5e-4}       # for all algorithms

[[environments]]
id = "collm/MiniBuild-v0"
name = "build, 4 turns"                     # default: the id
kwargs = {max_turns = 4}
model = {max_new_tokens = 8}                # language models; network = {…} for agents that act by vectors
threshold = 0.5                             # return; the cost of reaching it is the sample efficiency
budget = {environment_steps = 2_560}        # default: the suite's
algorithms = ["IAC, trace 1"]               # names of the algorithms that run it; default: all

[[algorithms]]
name = "IAC, trace 1"
algorithm = "iac"
config = {trace = 1.0}
config_in = {"build, 4 turns" = {trace = 0.5}}
kwargs = {single_model = true}              # arguments of all environments; they override the environment's
model = {max_new_tokens = 16}               # settings of the models; they override the environment's

[[algorithms]]
name = "pipeline"
algorithm = "prompted"                      # the models are evaluated and not trained
model = {protocol = "pipeline"}

[[contrasts]]                               # hypotheses, fixed before the runs; see `Contrast`
name = "trace"
score = "success"
terms = [[1, "IAC, trace 1", "build, 4 turns"], [-1, "IAC, trace 0.5", "build, 4 turns"]]

With `starts = ["folder a", "folder b"]`, the initial model of seed s has the index s modulo the number of starts.
Folders are searched in the working directory, then next to the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

from ..._errors import UserError, nearest
from ..._ranges import Checked, Finite, Seed
from ..._settings import FOREIGN_NAMES
from ..._toml import read_toml
from ...agents.config import MAX_NEW_TOKENS, ModelConfig
from ...agents.numeric.config import NetworkConfig
from ...algorithms.registry import UnknownAlgorithmError, algorithm_spec

if TYPE_CHECKING:
    from ...algorithms.runs.assembly.experiment import Experiment

PROMPTED = "prompted"  # algorithm of entries whose models are not trained
UNUSED = "mareinforce"  # algorithm in the settings of such entries; it is not used, and has no critic
UNNAMED = "benchmark"  # name of a suite without a name
SUITES = Path(__file__).parents[1] / "suites"

BudgetUnit = Literal["environment_steps", "generated_tokens"]

# Settings that must be equal for all algorithms of a comparison, so no entry may set them.
SHARED = ("seed", "num_updates", "max_environment_steps", "max_sampled_tokens", "rollout_buffer_size")


@dataclass(frozen=True)
class Budget:
    """Budget of a run, in environment steps or tokens. The update that reaches the budget is the last one."""

    amount: int
    unit: BudgetUnit

    @classmethod
    def read(cls, table: Mapping[str, Any]) -> Budget:
        """Convert a TOML table {unit: amount} to a budget. Raise UserError if the table is invalid."""
        if not isinstance(table, Mapping):
            raise UserError(f"a budget is a table such as {{environment_steps = 640}}, got {table!r}")
        if len(table) != 1 or next(iter(table)) not in get_args(BudgetUnit):
            raise UserError(f"a budget is one of {', '.join(get_args(BudgetUnit))} with a number, got {dict(table)}")
        ((unit, amount),) = table.items()
        if type(amount) is not int or amount < 1:
            raise UserError(f"budget: {unit}={amount!r} must be an integer of at least 1")
        return cls(amount, cast(BudgetUnit, unit))


@dataclass(frozen=True)
class EnvironmentEntry(Checked):
    """Environment of a comparison, with its arguments and budget."""

    id: str
    name: str
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    model: Mapping[str, Any] = field(default_factory=dict)
    network: Mapping[str, Any] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    budget: Budget | None = None  # None: the budget of the suite
    threshold: Finite | None = None  # return; None: no sample efficiency is computed
    algorithms: Sequence[str] = ()  # names of the algorithms that run it; none: all
    score: str = "return"  # evaluation metric in the table of published results, such as "metric/score"
    small_kwargs: Mapping[str, Any] = field(default_factory=dict)  # arguments that differ with `--scale`
    max_score: Finite | None = None  # highest value of this metric; None: no table of published results
    place: int = 0  # index in the file; reports keep this order


@dataclass(frozen=True)
class AlgorithmEntry(Checked):
    """Method of a comparison: an algorithm with its settings."""

    algorithm: str
    name: str
    config: Mapping[str, Any] = field(default_factory=dict)
    config_in: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # keys: names of environments
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    model: Mapping[str, Any] = field(default_factory=dict)
    model_in: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # keys: names of environments
    budget_in: Mapping[str, Budget] = field(default_factory=dict)  # keys: names of environments
    published: Mapping[str, Sequence[float]] = field(default_factory=dict)  # environment: [% of max., tokens, seconds]
    place: int = 0  # index in the file


ContrastScore = Literal["return", "success", "training success", "episodes"]


@dataclass(frozen=True)
class Contrast:
    """Planned comparison: a weighted sum of scores of the same seed. Its mean over seeds is tested against 0."""

    name: str
    terms: Sequence[tuple[float, str, str]]
    """Weight, algorithm entry and environment entry of each term."""
    score: ContrastScore
    """Score of a run. "return": mean return of the held-out episodes at the end. "success": fraction of successful
    held-out episodes. "training success": fraction of successful training episodes. "episodes": binary logarithm of the
    training episodes until 80 % succeed."""
    is_primary: bool = False
    """True for the main hypotheses. p values are corrected separately for primary and other contrasts."""


@dataclass(frozen=True)
class Suite(Checked):
    """Comparison of algorithms on environments, as read from a TOML file."""

    name: str
    seeds: Sequence[Seed]
    environments: Sequence[EnvironmentEntry]
    algorithms: Sequence[AlgorithmEntry]
    budget: Budget | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    model: Mapping[str, Any] = field(default_factory=dict)
    network: Mapping[str, Any] = field(default_factory=dict)
    starts: Sequence[str] = ()  # initial models of the seeds; empty: the model of the settings
    contrasts: Sequence[Contrast] = ()
    scale: float = 1.0
    """Fraction of the tasks, epochs, evaluation episodes and tokens per reply. Below 1, tasks come from the data
    in the package. Budgets are multiplied by the square, because a run has one episode per task and epoch, and the
    smallest are replaced by two updates. A run has at least 2 evaluation episodes, and 16 tokens per reply."""

    @property
    def folder(self) -> str:
        return slug(self.name)


@dataclass(frozen=True)
class Job:
    """Run of a comparison: one algorithm in one environment with one seed."""

    algorithm: str  # the entry's name
    environment: str  # the entry's name
    seed: int
    experiment: Experiment
    budget: Budget
    threshold: float | None
    place: tuple[int, int]  # indices of the environment and of the algorithm in the suite
    is_prompted: bool = False  # the models are evaluated and not trained
    published: Mapping[str, Any] = field(default_factory=dict)  # see `report.published`
    suite: str = ""  # name of the suite

    @property
    def directory(self) -> Path:
        """Folder of the run, relative to the folder of the comparison."""
        return Path("runs") / slug(self.environment) / slug(self.algorithm) / f"seed-{self.seed}"

    @property
    def label(self) -> dict[str, Any]:
        return {
            "algorithm": self.algorithm,
            "environment": self.environment,
            "seed": self.seed,
            "threshold": self.threshold,
            "budget": {self.budget.unit: self.budget.amount},
            "place": list(self.place),
            "published": dict(self.published),
            "suite": self.suite,
        }


def read_suite(path: Path) -> Suite:
    """Read a TOML file, or one of collm's own suites by its name. Raise ValueError if the suite is invalid."""
    shipped = SUITES / f"{path}.toml"
    path = shipped if shipped.is_file() and not path.exists() else path
    if not path.is_file():
        known = sorted(each.stem for each in SUITES.glob("*.toml"))
        raise FileNotFoundError(
            f"{path} is neither a TOML file nor the name of a suite of collm; {nearest(path.name, known)}"
        )
    table = read_toml(path)
    try:
        suite = parse_suite(table, default_name=path.stem)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path}: {error}") from error
    return replace(suite, starts=tuple(_found(start, path.parent) for start in suite.starts))


def _found(model: str, folder: Path) -> str:
    """Path of a model folder next to the file. Without such a folder, return the name."""
    beside = (folder / model).absolute()
    if Path(model).exists() or not beside.is_dir():
        return model
    return str(beside.relative_to(Path.cwd()) if beside.is_relative_to(Path.cwd()) else beside)


def parse_suite(table: Mapping[str, Any], *, default_name: str = UNNAMED) -> Suite:
    """Convert a parsed TOML file to a suite. Raise ValueError if the suite is invalid."""
    _refuse_unknown("the suite", table, {each.name for each in fields(Suite)} - {"scale"})
    environments: list[EnvironmentEntry] = []
    for entry in _tables(table, "environments"):
        entry = {"id": entry.get("id", ""), "name": entry.get("id", ""), **entry}
        _refuse_unknown("an environment", entry, {each.name for each in fields(EnvironmentEntry)} - {"place"})
        if "budget" in entry:
            entry["budget"] = Budget.read(entry["budget"])
        environments.append(EnvironmentEntry(**entry, place=len(environments)))
    algorithms: list[AlgorithmEntry] = []
    for entry in _tables(table, "algorithms"):
        name = entry.get("algorithm", "")
        entry = {"algorithm": name or entry.get("name", ""), "name": name, **entry}
        _refuse_unknown("an algorithm", entry, {each.name for each in fields(AlgorithmEntry)} - {"place"})
        entry["budget_in"] = {name: Budget.read(budget) for name, budget in entry.get("budget_in", {}).items()}
        algorithms.append(AlgorithmEntry(**entry, place=len(algorithms)))
    read: dict[str, Any] = {"environments": tuple(environments), "algorithms": tuple(algorithms)}
    read["contrasts"] = tuple(_contrast(entry) for entry in _tables(table, "contrasts"))
    if "budget" in table:
        read["budget"] = Budget.read(table["budget"])
    suite = Suite(**{"name": default_name, "seeds": (), **table, **read})
    _check(suite)
    return suite


def _tables(table: Mapping[str, Any], name: str) -> Sequence[dict[str, Any]]:
    entries = table.get(name, ())
    if not isinstance(entries, (list, tuple)) or not all(isinstance(entry, dict) for entry in entries):
        raise UserError(f"{name} must be a list of tables ([[{name}]] in TOML), got {entries!r}")
    return entries


def _contrast(entry: Mapping[str, Any]) -> Contrast:
    _refuse_unknown("a contrast", entry, {each.name for each in fields(Contrast)})
    if missing := [name for name in ("name", "terms", "score") if name not in entry]:
        raise ValueError(f"a contrast needs the key {missing[0]!r}, got {dict(entry)}")
    for term in entry["terms"]:
        if not isinstance(term, (list, tuple)) or [type(each) for each in term[1:]] != [str, str]:
            raise ValueError(f"a term of a contrast must be [weight, algorithm, environment], got {term!r}")
    if entry["score"] not in get_args(ContrastScore):
        raise ValueError(f"the score of a contrast must be one of {get_args(ContrastScore)}, got {entry['score']!r}")
    terms = tuple((float(weight), algorithm, environment) for weight, algorithm, environment in entry["terms"])
    return Contrast(**{**entry, "terms": terms})


def jobs(suite: Suite) -> list[Job]:
    """List all runs, ordered by seed, so that an interrupted comparison has complete seeds."""
    return [
        _job(suite, environment, algorithm, seed)
        for seed in suite.seeds
        for environment in suite.environments
        for algorithm in suite.algorithms
        if algorithm.name in environment.algorithms or not environment.algorithms
    ]


def slug(name: str) -> str:
    """Convert a name to a file name that is valid in all file systems."""
    return re.sub(r"[^\w.-]+", "-", name).strip("-.")


def _job(suite: Suite, environment: EnvironmentEntry, algorithm: AlgorithmEntry, seed: int) -> Job:
    from ...algorithms.runs.assembly.experiment import Experiment  # late import: reading a suite needs no torch

    name, is_prompted = environment.name, algorithm.algorithm == PROMPTED
    budget = algorithm.budget_in.get(name) or environment.budget or suite.budget
    assert budget is not None
    model = {**suite.model, **environment.model, **algorithm.model, **algorithm.model_in.get(name, {})}
    kwargs = dict(environment.kwargs)
    config_class = _config_class(algorithm.algorithm)
    settings = {**suite.config, **environment.config, **algorithm.config, **algorithm.config_in.get(name, {})}
    settings.setdefault("eval_num_samples", 64)  # also with large models, because the results are compared
    if suite.scale < 1:
        budget = replace(budget, amount=max(1, round(budget.amount * suite.scale**2)))
        settings["eval_num_samples"] = max(2, round(settings["eval_num_samples"] * suite.scale))
        model["max_new_tokens"] = max(16, round(model.get("max_new_tokens", MAX_NEW_TOKENS) * suite.scale))
        if kwargs.pop("data", None) is not None:
            kwargs["data"] = "builtin"
        kwargs.pop("columns", None)
        kwargs |= environment.small_kwargs
    known = {each.name for each in fields(config_class)}
    _refuse_partial({**suite.config, **environment.config}, algorithm.name, known, suite.algorithms)
    _refuse_unknown(f"the config of {algorithm.name}", settings, known)
    if settings.get("learning_rate_schedule", "constant") != "constant":
        raise ValueError("learning_rate_schedule must be constant, because the budget ends a run")
    try:
        size = config_class(**settings).rollout_buffer_size
    except UserError as error:
        raise UserError(f"the config of {algorithm.name} in {name}: {error}") from error
    limit = "max_environment_steps" if budget.unit == "environment_steps" else "max_sampled_tokens"
    # Each episode has at least one step and one token, so the run reaches its budget before this number of updates.
    settings |= {"seed": seed, "num_updates": -(-budget.amount // size), limit: budget.amount}
    if suite.scale < 1 and budget.amount < 2 * size:
        settings |= {"num_updates": 2, limit: None}
    if suite.starts:
        model["model"] = suite.starts[seed % len(suite.starts)]
    network: dict[str, Any] = {**suite.network, **environment.network}
    network = {name: tuple(value) if isinstance(value, list) else value for name, value in network.items()}
    experiment = Experiment(
        algorithm=UNUSED if is_prompted else algorithm.algorithm,
        config=config_class(**settings),
        env=environment.id,
        env_kwargs={**kwargs, **algorithm.kwargs},
        model=ModelConfig(**model),
        network=NetworkConfig(**network),
    )
    published: dict[str, Any] = {}
    if environment.max_score is not None:
        found = list(algorithm.published.get(name, ()))
        published = {"score": environment.score, "max_score": environment.max_score, "found": found}
    threshold, place = environment.threshold, (environment.place, algorithm.place)
    return Job(algorithm.name, name, seed, experiment, budget, threshold, place, is_prompted, published, suite.name)


def _config_class(algorithm: str) -> type[Any]:
    return algorithm_spec(UNUSED if algorithm == PROMPTED else algorithm).config


def _check(suite: Suite) -> None:
    for what, names in {
        "seeds": [str(seed) for seed in suite.seeds],
        "environments": [slug(entry.name) for entry in suite.environments],
        "algorithms": [slug(entry.name) for entry in suite.algorithms],
    }.items():
        if not names:
            raise ValueError(f"a comparison needs {what}, but none are given; add at least one")
        if not all(names):
            raise ValueError(f"{what} need names with letters or digits, because they are names of folders")
        if twice := {name for name in names if names.count(name) > 1}:
            raise ValueError(f"{what} must have different names, but {sorted(twice)} occur twice")
    for algorithm in suite.algorithms:
        try:
            _config_class(algorithm.algorithm)
        except UnknownAlgorithmError as error:
            raise ValueError(str(error)) from error
        for part in ("config_in", "model_in", "budget_in", "published"):
            known = {each.name for each in suite.environments}
            _refuse_unknown(f"{part} of {algorithm.name}", getattr(algorithm, part), known)
    entries = {each.name for each in suite.algorithms}, {each.name for each in suite.environments}
    for contrast in suite.contrasts:
        for place, known in enumerate(entries, 1):
            _refuse_unknown(f"the contrast {contrast.name!r}", [str(term[place]) for term in contrast.terms], known)
    for environment in suite.environments:
        if environment.budget is None and suite.budget is None:
            raise ValueError(f"{environment.name} has no budget; add a budget to this environment or to the suite")
        _refuse_unknown(f"algorithms of {environment.name}", environment.algorithms, entries[0])
    check_settings(suite)


def check_settings(suite: Suite) -> None:
    """Raise an error for unknown settings, and for settings of entries that must be equal for all algorithms."""
    for algorithm in suite.algorithms:
        for where, config in {"config": algorithm.config, **algorithm.config_in}.items():
            _refuse_shared(f"{where} of {algorithm.name}", config, SHARED)
        for model in (algorithm.model, *algorithm.model_in.values()):
            _refuse_unknown(f"model of {algorithm.name}", model, {each.name for each in fields(ModelConfig)})
    places: list[Suite | EnvironmentEntry] = [suite, *suite.environments]
    for each in places:
        name = "the suite" if each is suite else each.name
        _refuse_shared(f"config of {name}", each.config, SHARED[:-1])
        _refuse_unknown(f"model of {name}", each.model, {setting.name for setting in fields(ModelConfig)})
        _refuse_unknown(f"network of {name}", each.network, {setting.name for setting in fields(NetworkConfig)})


def _refuse_shared(where: str, config: Mapping[str, Any], names: Sequence[str]) -> None:
    for name in names:
        if name in config:
            raise ValueError(
                f"{where} sets {name}, which must be equal for all algorithms; use the suite's `seeds` and `budget`"
            )


def _refuse_partial(
    common: Mapping[str, Any], name: str, known: set[str], algorithms: Sequence[AlgorithmEntry]
) -> None:
    """Raise an error if the suite sets, for all algorithms, a setting that this algorithm does not have."""
    for setting in common.keys() - known:
        owners = [
            each.name for each in algorithms if setting in {own.name for own in fields(_config_class(each.algorithm))}
        ]
        if owners:
            given = " ".join(f"{owner}.{setting}={common[setting]}" for owner in owners)
            raise UserError(
                f"the config of all algorithms sets {setting!r}, which {name} does not have; set it per algorithm: "
                f"--config {given}, or in [[algorithms]] of the suite"
            )


def _refuse_unknown(where: str, given: Iterable[str], known: set[str]) -> None:
    for name in given:
        if name not in known:
            raise UserError(f"{where} has no {name!r}; {FOREIGN_NAMES.get(name) or nearest(name, sorted(known))}")
