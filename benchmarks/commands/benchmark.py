"""`collm benchmark SUITE`: compare algorithms on environments with several seeds and concurrent runs."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from tyro.conf import Positional

from ..._errors import nearest
from ..._extras import require
from ..._ranges import Also, Checked, Count, InRange, Needs, NotNegative, Positive, Seed
from ..._terminal import print_line, shown, terminal
from ...agents.config import TINY
from ..arguments import keyword_arguments, parsed
from ..errors import UserError, check_folder, refusals

if TYPE_CHECKING:
    from ..comparison.runner import ComparisonResult
    from ..comparison.suite import Job, Suite
    from ..comparison.tasks import RayTasks


@dataclass(frozen=True, kw_only=True)
class BenchmarkArguments(Checked):
    """Compare algorithms with the same environments, seeds, initial weights and budgets."""

    suite: Positional[Path | None] = None
    """TOML file of the comparison, or the name of one that ships (smoke, claim, games, replication, tuning,
    ablations, teams, paper, published, lbf, rware, minigrid, tictactoe). None: --algorithms on --envs. For
    credit, see `collm benchmark credit --help`."""
    algorithms: tuple[str, ...] = ()
    """Algorithms to compare: names as in `collm train`, or names of entries of the suite. Default: all entries."""
    envs: tuple[str, ...] = ()
    """Registered ids of the environments, or names of entries of the suite. Default: all entries."""
    seeds: tuple[Seed, ...] = ()
    """Seeds of the runs. Default: the seeds of the suite, or 0 to 4 without a suite."""
    environment_steps: Count | None = None
    """Budget of each run in joint turns. None: the budget of the suite, or 3,200 without a suite."""
    generated_tokens: Count | None = None
    """Budget of each run in generated tokens instead of joint turns. None: no limit of tokens."""
    config: tuple[str, ...] = ()
    """Settings as key=value for all algorithms, or as NAME.key=value for one algorithm, such as iac.critic_warmup=1.
    They override the suite."""
    model_config: tuple[str, ...] = ()
    """Settings of the language models as key=value. They override the suite."""
    model: Annotated[str | None, Also("model_name_or_path")] = None
    """Model of all runs, as in `collm train --model`. With tiny, the suite's chat template and data type do not apply.
    None: the models of the suite."""
    scale: Annotated[float, InRange(above=0, most=1), Needs("a suite", lambda call: call.suite is not None)] = 1.0
    """Fraction of the suite's tasks, epochs, seeds, evaluation episodes and tokens per reply, to try a suite. Below 1,
    tasks come from the data in the package, and the smallest budgets are replaced by two updates. Budgets and lengths
    given by options are scaled too."""
    dry_run: bool = False
    """Print the memory and the time that each run needs, without starting a run."""
    max_new_tokens: Count | None = None
    """Maximum tokens per completion. None: the value of the suite, or the model's limit."""
    out: Path | None = None
    """Folder of the comparison. Runs that are already finished there are skipped. None: runs/<name of the suite>."""
    workers: Count | None = None
    """Number of concurrent runs. None: one per core, or with --on the number that the cluster can run."""
    minutes: Positive | None = None
    """Time limit in minutes, which must be longer than an update. After this time no more runs start, and active runs
    stop with a checkpoint. The same command continues the comparison. None: no limit."""
    on: str | None = None
    """Ray cluster for the runs. "ray" starts one on this machine, "ray://HOST:PORT" joins the cluster of `ray start
    --head` at that port. Its machines must share the folder --out. Needs collm[ray]. None: local processes."""
    num_cpus: Annotated[Positive, Needs("--on", lambda call: call.on is not None)] = 1.0
    """CPU cores per run, with --on."""
    num_gpus: Annotated[NotNegative, Needs("--on", lambda call: call.on is not None)] = 0.0
    """GPUs per run, which can be a fraction, with --on."""


def run(args: Sequence[str]) -> None:
    if args and args[0] == "credit":
        from .playing.credit import run as run_credit

        return run_credit(args[1:])
    arguments = parsed(BenchmarkArguments, "benchmark", args)
    if arguments.on is not None:
        require("ray")

    from ..comparison.suite import jobs  # late imports: help needs no environment

    console = terminal()
    with refusals():
        suite = chosen_suite(arguments)

        from ..comparison.runner import check_jobs, compare  # late import: reading the suite needs no torch

        out = arguments.out or Path("runs") / suite.folder
        check_folder(out, "--out")
        found = jobs(suite)
        if arguments.dry_run:
            from ..report.estimate import estimates
            from .report import print_table

            print_table(estimates(found), console)
            return
        check_jobs(found)
    num_workers = arguments.workers or os.cpu_count() or 1
    launcher = None
    if arguments.on is not None:
        launcher = _tasks(arguments.on, arguments)
        num_workers = arguments.workers or launcher.num_at_a_time
    display = ComparisonDisplay(len(found), console)
    with display.live:
        result = compare(
            found, out, num_workers=num_workers, watcher=display, launcher=launcher, minutes=arguments.minutes
        )
    conclude(result, out, console)


def _tasks(address: str, arguments: BenchmarkArguments) -> RayTasks:
    from ..._cluster import Cluster
    from ..comparison.tasks import RayTasks

    with refusals():
        cluster = Cluster(
            address=address,
            num_actors=arguments.workers or 1,
            num_cpus=arguments.num_cpus,
            num_gpus=arguments.num_gpus,
        )
        cluster.check()
        return RayTasks(cluster)


def chosen_suite(arguments: BenchmarkArguments) -> Suite:
    """Read a suite and apply the options to it, or build a suite from the options alone."""
    from ..comparison.suite import Budget, check_settings, parse_suite, read_suite

    budgets = {"environment_steps": arguments.environment_steps, "generated_tokens": arguments.generated_tokens}
    given = {unit: amount for unit, amount in budgets.items() if amount is not None}
    if len(given) > 1:
        raise ValueError("--environment-steps and --generated-tokens are different budgets; give one of them")
    model = keyword_arguments(arguments.model_config, "--model-config")
    if arguments.model is not None:
        # A suite's chat template and data type are not for the embedded model.
        of_tiny = {"is_chat": False, "template_kwargs": {}, "compute_dtype": "float32"}
        model = {**(of_tiny if arguments.model == TINY else {}), "model": arguments.model, **model}
    if arguments.max_new_tokens is not None:
        model["max_new_tokens"] = arguments.max_new_tokens
    config: dict[str, Any] = {}
    own: dict[str, dict[str, Any]] = {}  # settings as NAME.key=value, which are for one algorithm
    for name, value in keyword_arguments(arguments.config, "--config").items():
        owner, dot, setting = name.rpartition(".")
        (own.setdefault(owner, {}) if dot else config)[setting] = value
    if arguments.suite is None:
        if not arguments.algorithms or not arguments.envs:
            raise ValueError("no comparison is given; give a suite, or both --algorithms and --envs")
        refuse_strangers(own, arguments.algorithms)
        return parse_suite(
            {
                "budget": given or {"environment_steps": 3_200},
                "seeds": arguments.seeds or tuple(range(5)),
                "environments": [{"id": id} for id in arguments.envs],
                "algorithms": [{"name": name, "config": own.get(name, {})} for name in arguments.algorithms],
                "config": {"save_interval": 10, **config},
                "model": model,
            }
        )
    suite = read_suite(arguments.suite)
    budget = Budget.read(given) if given else None
    environments = [
        replace(entry, budget=budget or entry.budget, model={**entry.model, **model}, config={**entry.config, **config})
        for entry in _only(arguments.envs, suite.environments, "environment")
    ]
    algorithms = _only(arguments.algorithms, suite.algorithms, "algorithm")
    refuse_strangers(own, [entry.name for entry in algorithms])
    settings = {
        entry.name: {
            place.name: {**entry.config_in.get(place.name, {}), **own.get(entry.name, {})} for place in environments
        }
        for entry in algorithms
    }
    changed = replace(
        suite,
        seeds=arguments.seeds or suite.seeds[: max(1, round(len(suite.seeds) * arguments.scale))],
        scale=arguments.scale,
        environments=environments,
        algorithms=[replace(entry, config_in=settings[entry.name]) for entry in algorithms],
    )
    check_settings(changed)
    return changed


def refuse_strangers(own: Mapping[str, Any], names: Sequence[str]) -> None:
    for name in own:
        if name not in names:
            raise UserError(f"--config: the comparison has no algorithm {name!r}; {nearest(name, names)}")


def _only(names: Sequence[str], entries: Sequence[Any], what: str) -> list[Any]:
    known = {entry.name: entry for entry in entries}
    for name in names:
        if name not in known:
            raise UserError(f"the suite has no {what} {name!r}; {nearest(name, known)}")
    return [known[name] for name in names or known]


def conclude(result: ComparisonResult, out: Path, console: Console) -> None:
    done = len(result.finished) + len(result.skipped)
    console.print(f"{done} runs finished, {len(result.skipped)} of them earlier; folder: {shown(out)}", markup=False)
    if result.failures:
        by_reason: dict[str, list[Path]] = {}
        for directory, why in result.failures.items():
            by_reason.setdefault(why, []).append(directory)
        for why, directories in by_reason.items():
            print_line(f"{why}; failed runs:", console)
            for directory in directories:
                console.print(f"  {shown(directory)}", markup=False, soft_wrap=True)
        raise UserError(f"{len(result.failures)} runs failed; run the same command to retry them")
    if result.left:
        console.print(f"{len(result.left)} runs are left; run the same command to continue", markup=False)
    print_line(f"next: collm report {shlex.quote(str(out))}", console)


class ComparisonDisplay:
    """Progress bars of the comparison and of each active run. Without a terminal: plain lines."""

    def __init__(self, num_runs: int, console: Console):
        self.console = console
        self.num_runs = num_runs
        self.num_ended = 0
        self.progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
            TimeElapsedColumn(),
            console=console,
        )
        self.total = self.progress.add_task("runs", total=num_runs, note="")
        self.tasks: dict[Path, TaskID] = {}
        live = Live(self.progress, console=console, refresh_per_second=4)
        self.live = live if console.is_terminal else nullcontext()

    def skipped(self, jobs: Sequence[Job]) -> None:
        self.num_ended += len(jobs)
        self.progress.update(self.total, completed=self.num_ended)
        if jobs:
            self.console.print(f"{len(jobs)} of {self.num_runs} runs are already finished")

    def started(self, job: Job) -> None:
        self.tasks[job.directory] = self.progress.add_task(_title(job), total=job.budget.amount, note="")

    def updated(self, job: Job, update: int, metrics: Mapping[str, float]) -> None:
        unit = "environment_steps" if job.budget.unit == "environment_steps" else "sampled_tokens"
        note = f"return {metrics['return']:.3f}" if "return" in metrics else ""
        self.progress.update(self.tasks[job.directory], completed=metrics[unit], note=note)

    def ended(self, job: Job, failure: str | None) -> None:
        self.num_ended += 1
        self.progress.update(self.total, completed=self.num_ended)
        note = self.progress.tasks[self.progress.task_ids.index(self.tasks[job.directory])].fields["note"]
        self.progress.remove_task(self.tasks.pop(job.directory))
        done = f"last {note}" if note else "evaluated"
        result = done if failure is None else f"failed: {failure.strip().splitlines()[-1]}"
        print_line(f"{self.num_ended:>4}/{self.num_runs}  {_title(job)}  {result}", self.console)


def _title(job: Job) -> str:
    return shown(f"{job.environment} · {job.algorithm} · seed {job.seed}")
