"""`collm evaluate --suite core`: evaluate teams on the core suite, and write results and a table."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from ..._ownership import refuse_foreign_files, write_text
from ..._ranges import refuse_password
from ..._terminal import print_line, shown
from ...agents.config import ModelConfig
from ...agents.core import Policy
from ...agents.scripted import RandomPolicy, fixed_policy, reference_policy
from ...algorithms.registry import algorithm_spec
from ...algorithms.rollout.collector import RolloutCollector
from ...algorithms.rollout.intervals import (
    Interval,
    bootstrap_indices,
    bootstrap_interval,
    percentile_interval,
    resampled,
)
from ...algorithms.runs.api import Run, load_run, untrained
from ...algorithms.runs.assembly.experiment import Experiment
from ...algorithms.runs.evaluation import evaluate_on
from ...envs.players import PLAYERS
from ...envs.vectors.vector import SyncVector
from ..errors import UserError
from ..markdown import markdown_table
from .result import ANCHORS_FILE, SuiteResult, core_ids, seeds_of

TABLE_FILE = "table.md"
NUM_RESAMPLES = 5_000
TITLE = "Core suite: score on held-out seeds, 0 as random play and 1 as the reference player, mean [95 %]"
SPLIT = "test"

# Callback after each environment, with the incomplete result and a line about the environment.
OnProgress = Callable[[SuiteResult, str], None]
Returns = Mapping[str, Sequence[float]]  # team returns; keys: decoding modes ("sampled", "greedy")


@dataclass(frozen=True)
class Anchor:
    """Mean returns on held-out seeds that define the scores 0 (floor) and 1 (reference)."""

    floor: float
    reference: float

    def score(self, value: float) -> float:
        """Scale a return: (return - floor) / (reference - floor)."""
        return (value - self.floor) / (self.reference - self.floor)


@cache
def anchors() -> Mapping[str, Anchor]:
    """Read the reference returns of all environments. Raise ValueError if they were measured on other seeds."""
    found = json.loads(ANCHORS_FILE.read_text(encoding="utf-8"))
    for id, each in found.items():
        if each["seeds_sha256"] != seeds_of(id).sha256:
            raise ValueError(f"{ANCHORS_FILE.name}: {id} was measured on other seeds; run python tools/anchors.py")
    return {id: Anchor(each["floor"], each["reference"]) for id, each in found.items()}


def evaluate_suite(
    console: Console,
    folder: Path,
    *,
    directories: Sequence[Path] = (),
    models: Sequence[str] = (),
    ids: Sequence[str] = (),
    ways: Sequence[str] = ("sampled", "greedy"),
    model: ModelConfig | None = None,
    trust: bool = False,
    is_json: bool = False,
) -> None:
    """Evaluate teams on the suite. Write one result per team after each environment, and the table `table.md`.

    The arguments are the options of `collm evaluate --suite core`. The runs in `directories` are one team, and each of
    `models` is a team. Empty `ids`: all environments.

    Raises:
        UserError: if a team, an environment or a file is invalid.
        SystemExit: with status 1, after all files are written, if a team could not play one of the environments.
    """
    for name in models:
        refuse_password(name)
    for id in ids:
        seeds_of(id)
    chosen = tuple(ids) or core_ids()
    teams = [*models, *([team_of(directories)] if directories else [])]
    if len({file_name(team) for team in teams}) < len(teams):
        raise UserError("the names of two teams give the same file name; evaluate them in separate calls")
    refuse_foreign_files(folder, [TABLE_FILE, *map(file_name, teams)])

    def on_progress(so_far: SuiteResult, line: str) -> None:
        if so_far.returns:
            text = json.dumps(so_far.to_json(), indent=1, ensure_ascii=False)
            write_text(folder, file_name(so_far.team), text + "\n")
        if not is_json:
            console.print(shown(line), markup=False, highlight=False)

    played: list[SuiteResult] = []
    for name in models:
        if name in PLAYERS:
            played.append(player_result(name, chosen, on_progress))
        else:
            config = replace(model or ModelConfig(), model=name)
            played.append(model_result(config, chosen, ways, folder, on_progress))
    if directories:
        played.append(runs_result(directories, ways, trust, on_progress))
    if is_json:
        print(json.dumps([each.to_json() for each in played], indent=1, ensure_ascii=False))
    write_text(folder, TABLE_FILE, markdown(played))
    if not is_json:
        header, cells = rows(played)
        table = Table(*(Column(Text(shown(name))) for name in header), title=Text(TITLE), title_justify="left")
        for row in cells:
            table.add_row(*row)
        console.print(table)
        for line in reasons(played):
            print_line(line, console)
        console.print(f"results and the table: {shown(folder)}", markup=False, soft_wrap=True)
    if any(each.unplayed for each in played):
        raise SystemExit(1)


def file_name(team: str) -> str:
    return (re.sub(r"[^A-Za-z0-9.]+", "-", team).strip("-.")[-60:] or "team") + ".json"


def score(id: str, returns: Sequence[float]) -> Interval:
    """Mean score in one environment, with its 95 % bootstrap interval over episodes."""
    anchor, mean = anchors()[id], bootstrap_interval(returns)
    return Interval(anchor.score(mean.value), anchor.score(mean.low), anchor.score(mean.high))


def suite_score(returns: Mapping[str, Sequence[float]]) -> Interval:
    """Mean score over environments (the keys), with its bootstrap interval over the episodes of each environment."""
    ids = sorted(returns)
    scores = np.array([[anchors()[id].score(value) for value in returns[id]] for id in ids]).T  # [R, K]
    indices = bootstrap_indices(scores.shape[0], scores.shape[1], NUM_RESAMPLES)
    return percentile_interval(float(scores.mean()), resampled(scores, indices).mean(axis=(1, 2)), 0.95)


def rows(results: Sequence[SuiteResult]) -> tuple[list[str], list[list[str]]]:
    """Header and cells: one column per team and decoding mode, one row per environment, and a row of means."""
    columns = [(each, way) for each in results for way in each.ways]
    header = ["environment", *(f"{each.team}, {way}" for each, way in columns)]
    cells = [[id, *(_cell(each, way, id) for each, way in columns)] for id in core_ids()]
    return header, [*cells, ["mean", *(_mean(each, way) for each, way in columns)]]


def _cell(result: SuiteResult, way: str, id: str) -> str:
    if id in result.unplayed:
        return "unplayed"
    returns = result.returns.get(id, {}).get(way)
    return "-" if returns is None else str(score(id, returns))


def _mean(result: SuiteResult, way: str) -> str:
    played = {id: ways[way] for id, ways in result.returns.items() if way in ways}
    missing = "" if len(played) == len(core_ids()) else f" ({len(played)} of {len(core_ids())})"
    return f"{suite_score(played)}{missing}"


def reasons(results: Sequence[SuiteResult]) -> list[str]:
    return [f"{each.team} did not play {id}: {why}" for each in results for id, why in each.unplayed.items()]


def markdown(results: Sequence[SuiteResult]) -> str:
    lines = [f"# {TITLE}", "", markdown_table(*rows(results))]
    if found := reasons(results):
        lines += ["", *(f"- {line}" for line in found)]
    return "\n".join(lines) + "\n"


def player_result(name: str, ids: Sequence[str], on_progress: OnProgress) -> SuiteResult:
    """Evaluate a scripted player ("reference", "random" or "empty") on environments of the suite."""
    return _result(name, {id: partial(_player_returns, name, id) for id in ids}, on_progress)


def model_result(
    model: ModelConfig, ids: Sequence[str], ways: Sequence[str], folder: Path, on_progress: OnProgress
) -> SuiteResult:
    """Evaluate untrained models on environments of the suite.

    Args:
        folder: folder for the records of episodes in which an environment raised an error.
        on_progress: callback after each environment.

    Raises:
        UserError: if the models cannot play any of the environments.
    """
    plays = {id: lambda id=id: _returns(untrained(model, id, folder), ways) for id in ids}
    return _result(model.model, plays, on_progress)


def runs_result(directories: Sequence[Path], ways: Sequence[str], trust: bool, on_progress: OnProgress) -> SuiteResult:
    """Evaluate each run in the environment in which it was trained, and combine the returns to one result.

    Raises:
        UserError: if two runs have the same environment, or if an environment is not in the suite.
    """
    runs: dict[str, Run] = {}
    for directory in directories:
        run = load_run(directory, trust=trust)
        id = run.experiment.env
        seeds_of(id)
        if id in runs:
            raise UserError(f"{directory} and another run were both trained in {id}; give one run per environment")
        # The suite uses default arguments, because other arguments could make an environment easier.
        runs[id] = replace(run, experiment=replace(run.experiment, env_kwargs={}))
    plays = {id: partial(_returns, run, ways) for id, run in runs.items()}
    return _result(team_of(directories), plays, on_progress)


def team_of(directories: Sequence[Path]) -> str:
    return " ".join(map(str, directories))


def _result(team: str, plays: Mapping[str, Callable[[], Returns]], on_progress: OnProgress) -> SuiteResult:
    """Play all environments. A ValueError of an environment is stored as the reason in `unplayed`."""
    made = SuiteResult(team)
    for id, play in plays.items():
        try:
            found = play()
        except ValueError as error:  # for example prompts too long for the model, or an unreachable server
            made = replace(made, unplayed={**made.unplayed, id: " ".join(str(error).split())})
            on_progress(made, f"{id}: not played: {made.unplayed[id]}")
            continue
        made = replace(made, returns={**made.returns, id: found})
        means = (f"{way}: mean return {np.mean(each):.3f}" for way, each in found.items())
        on_progress(made, f"{id}, {', '.join(means)}")
    if not made.returns:
        raise UserError(f"{team} cannot play any environment: {'; '.join(made.unplayed.values())}")
    return made


def _returns(run: Run, ways: Sequence[str]) -> Returns:
    id = run.experiment.env
    found = {}
    for way in ways:
        result = run.evaluate(greedy=way == "greedy", split=SPLIT, seeds=seeds_of(id).seeds)
        if len(result.episodes) != len(seeds_of(id).seeds):
            raise UserError(f"{id}: episodes failed, so some seeds have no return")
        found[way] = [episode.team_return for episode in result.episodes]
    return found


def _player_returns(name: str, id: str) -> Returns:
    config = algorithm_spec("mareinforce").config()  # any algorithm, because there is no training
    env = Experiment(algorithm="mareinforce", config=config, env=id).make_env(SPLIT)
    policy: Policy = fixed_policy("")
    if name == "random":
        policy = RandomPolicy({agent: env.action_space(agent) for agent in env.possible_agents})
    elif name == "reference":
        policy = reference_policy(env)  # the policy needs the copy that is played
    with SyncVector(lambda: env, 1) as vector:
        team = dict.fromkeys(env.possible_agents, policy)
        episodes = evaluate_on(RolloutCollector(vector, team), seeds_of(id).seeds, greedy=False).episodes
    return {"sampled": [episode.team_return for episode in episodes]}
