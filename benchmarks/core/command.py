"""`collm evaluate --suite core`: plays the suite, writes a submission per team, and prints one table."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..._ownership import refuse_foreign_files, write_text
from ..._ranges import refuse_password
from ..._terminal import shown
from ...agents.config import ModelConfig
from ...agents.core import Policy
from ...agents.scripted import RandomPolicy, fixed_policy, reference_policy
from ...algorithms.registry import algorithm_spec
from ...algorithms.rollout.collector import RolloutCollector
from ...algorithms.rollout.episode import Episode
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
from .anchors import anchors
from .submission import Submission, core_ids, read_submission, seeds_of

TABLE_FILE = "table.md"


def evaluate_suite(
    console: Console,
    folder: Path,
    *,
    directories: Sequence[Path] = (),
    models: Sequence[str] = (),
    submissions: Sequence[Path] = (),
    ids: Sequence[str] = (),
    ways: Sequence[str] = ("sampled", "greedy"),
    model: ModelConfig | None = None,
    trust: bool = False,
    is_json: bool = False,
) -> None:
    """Play, and write `TEAM.json` for each team, anew after each environment, and the table of all, `table.md`.

    Args:
        console: where progress and the table are printed.
        folder: where the files go.
        directories: runs, which are one team together.
        models: teams by the names of their models, or scripted players.
        submissions: files that are shown beside them.
        ids: environments; none: all of the suite.
        ways: ways of playing.
        model: further settings of the models.
        trust: as in `load_experiment`.
        is_json: print the submissions as JSON in place of the table.

    Raises:
        UserError: if a team, an environment or a file cannot be used.
        SystemExit: with status 1, after all is written, if a team could not play one of the environments.
    """
    for name in models:
        refuse_password(name)
    beside = [read_submission(file) for file in submissions]
    chosen = checked_ids(ids)
    teams = [*models, *([team_of(directories)] if directories else [])]
    if len({plain_name(team) for team in teams}) < len(teams):
        raise UserError("two teams' names differ in signs alone, which would be one file; play them one by one")

    refuse_foreign_files(folder, [TABLE_FILE, *(f"{plain_name(team)}.json" for team in teams)])

    def told(so_far: Submission, line: str) -> None:
        if so_far.returns:
            so_far.write(folder / f"{plain_name(so_far.team)}.json")
        if not is_json:
            console.print(shown(line), markup=False, highlight=False)

    played: list[Submission] = []
    for name in models:
        if name in PLAYERS:
            played.append(player_submission(name, chosen, told))
        else:
            played.append(model_submission(replace(model or ModelConfig(), model=name), chosen, ways, folder, told))
    if directories:
        played.append(runs_submission(directories, ways, trust, told))
    if is_json:
        print(json.dumps([each.to_json() for each in (*played, *beside)], indent=1, ensure_ascii=False))
    everyone = [*played, *beside]
    write_text(folder, TABLE_FILE, markdown(everyone))
    if not is_json:
        show(console, everyone)
        for line in reasons(everyone):
            console.print(shown(line), markup=False, highlight=False, soft_wrap=True)
        console.print(f"submissions and the table: {shown(folder)}", markup=False, soft_wrap=True)
    if any(each.unplayed for each in played):
        raise SystemExit(1)


def plain_name(team: str) -> str:
    """Name of a team's file."""
    return re.sub(r"[^A-Za-z0-9.]+", "-", team).strip("-.")[-60:] or "team"


def show(console: Console, submissions: Sequence[Submission]) -> None:
    """Print the table."""
    header, cells = rows(submissions)
    table = Table(title=Text(TITLE), title_justify="left")
    for name in header:
        table.add_column(Text(shown(name)))
    for row in cells:
        table.add_row(*row)
    console.print(table)


NUM_RESAMPLES = 5_000
TITLE = "Core suite: score on held-out seeds, 0 as random play and 1 as the reference player, mean [95 %]"


def score(id: str, returns: Sequence[float]) -> Interval:
    """Mean normalised score in one environment, with its 95 % bootstrap interval over episodes."""
    anchor, mean = anchors()[id], bootstrap_interval(returns)
    return Interval(anchor.score(mean.value), anchor.score(mean.low), anchor.score(mean.high))


def suite_score(returns: Mapping[str, Sequence[float]]) -> Interval:
    """Mean score over environments, each of the same weight, resampling episodes within each of them.

    Args:
        returns: by id, as many for each.
    """
    ids = sorted(returns)
    scores = np.array([[anchors()[id].score(value) for value in returns[id]] for id in ids]).T  # [R, K]
    indices = bootstrap_indices(scores.shape[0], scores.shape[1], NUM_RESAMPLES)
    return percentile_interval(float(scores.mean()), resampled(scores, indices).mean(axis=(1, 2)), 0.95)


def rows(submissions: Sequence[Submission]) -> tuple[list[str], list[list[str]]]:
    """Header and cells: a column per team and way of playing, a row per environment and one for the mean.

    The mean is over what a team has played, and says how many environments these are where some are missing.
    """
    columns = [(each, way) for each in submissions for way in ways_of(each)]
    header = ["environment", *(f"{each.team}, {way}" for each, way in columns)]
    cells = []
    for id in core_ids():
        cells.append([id, *(_cell(each, way, id) for each, way in columns)])
    return header, [*cells, ["mean", *(_mean(each, way) for each, way in columns)]]


def _cell(submission: Submission, way: str, id: str) -> str:
    if id in submission.unplayed:
        return "unplayed"
    returns = submission.returns.get(id, {}).get(way)
    return "-" if returns is None else str(score(id, returns))


def _mean(submission: Submission, way: str) -> str:
    played = {id: ways[way] for id, ways in submission.returns.items() if way in ways}
    missing = "" if len(played) == len(core_ids()) else f" ({len(played)} of {len(core_ids())})"
    return f"{suite_score(played)}{missing}"


def reasons(submissions: Sequence[Submission]) -> list[str]:
    """A line per environment that a team could not play."""
    return [f"{each.team} did not play {id}: {why}" for each in submissions for id, why in each.unplayed.items()]


def ways_of(submission: Submission) -> list[str]:
    """Ways in which a team has played."""
    return list(dict.fromkeys(way for ways in submission.returns.values() for way in ways))


def markdown(submissions: Sequence[Submission]) -> str:
    """The table as Markdown, with its title, and with what was not played and why."""
    header, cells = rows(submissions)
    lines = [f"# {TITLE}", "", markdown_table(header, cells)]
    if told := reasons(submissions):
        lines += ["", *(f"- {line}" for line in told)]
    return "\n".join(lines) + "\n"


Told = Callable[[Submission, str], None]
"""(what is known so far, a line about the newest of it) -> None: hears of each environment that is done."""
Played = Mapping[str, Sequence[float]]
"""Returns by way of playing."""
SPLIT = "test"


def player_submission(name: str, ids: Sequence[str], told: Told) -> Submission:
    """What a scripted player reaches, which plays in one way only.

    Args:
        name: "reference", "random" or "empty".
        ids: environments.
        told: hears of each that is done.
    """

    def play(id: str) -> Played:
        return {"sampled": [episode.team_return for episode in _played_by(name, id)]}

    return _submission(name, [name], {id: partial(play, id) for id in ids}, told)


def model_submission(
    model: ModelConfig, ids: Sequence[str], ways: Sequence[str], folder: Path, told: Told
) -> Submission:
    """What models reach that were not trained here.

    Args:
        model: settings of the models; names as in `ModelConfig.model`.
        ids: environments.
        ways: "sampled", "greedy", or both.
        folder: where episodes are kept that an environment fails in.
        told: hears of each that is done.

    Raises:
        UserError: if they can play none of the environments.
    """

    def play(id: str) -> Played:
        return _returns(untrained(model, id, folder), ways)

    return _submission(model.model, model.model.split(","), {id: partial(play, id) for id in ids}, told)


def runs_submission(directories: Sequence[Path], ways: Sequence[str], trust: bool, told: Told) -> Submission:
    """What trained teams reach, each in the environment that it was trained in, as one submission.

    Raises:
        UserError: if two were trained in the same environment, or one in none of the suite, or with other arguments.
    """
    runs: dict[str, Run] = {}
    for directory in directories:
        run = load_run(directory, trust=trust)
        id = run.experiment.env
        seeds_of(id)
        if id in runs:
            raise UserError(f"{directory} and another run were both trained in {id}; give one run per environment")
        # The suite is the environments as they are: what a run was trained with must not make them easier.
        runs[id] = replace(run, experiment=replace(run.experiment, env_kwargs={}))
    plays = {id: partial(_returns, run, ways) for id, run in runs.items()}
    return _submission(team_of(directories), [str(each) for each in directories], plays, told)


def team_of(directories: Sequence[Path]) -> str:
    """Name of the team that runs are together."""
    return " ".join(map(str, directories))


def checked_ids(asked: Sequence[str]) -> tuple[str, ...]:
    """The environments asked for; all of the suite where none is."""
    for id in asked:
        seeds_of(id)
    return tuple(asked) or core_ids()


def _submission(team: str, models: Sequence[str], plays: Mapping[str, Callable[[], Played]], told: Told) -> Submission:
    """What comes of playing one environment after the other; one that is refused costs no other its returns."""
    made = Submission(team, models, {})
    for id, play in plays.items():
        try:
            found = play()
        except ValueError as error:  # a refusal: prompts that are too long for the model, a server that is gone
            made = replace(made, unplayed={**made.unplayed, id: " ".join(str(error).split())})
            told(made, f"{id}: not played: {made.unplayed[id]}")
            continue
        made = replace(made, returns={**made.returns, id: found})
        means = (f"{way}: mean return {np.mean(each):.3f}" for way, each in found.items())
        told(made, f"{id}, {', '.join(means)}")
    if not made.returns:
        raise UserError(f"{team} can play none of it: {'; '.join(made.unplayed.values())}")
    return made


def _returns(run: Run, ways: Sequence[str]) -> Played:
    id = run.experiment.env
    found = {}
    for way in ways:
        result = run.evaluate(greedy=way == "greedy", split=SPLIT, seeds=seeds_of(id).seeds)
        if len(result.episodes) != len(seeds_of(id).seeds):
            raise UserError(f"{id}: episodes were given up, so there is no return for every seed")
        found[way] = [episode.team_return for episode in result.episodes]
    return found


def _played_by(name: str, id: str) -> Sequence[Episode]:
    if name not in PLAYERS:
        raise UserError(f"there is no scripted player {name!r}; choose one of {', '.join(PLAYERS)}")
    spec = algorithm_spec("mareinforce")  # no one learns
    env = Experiment(algorithm=spec.name, config=spec.config(), env=id).make_env(SPLIT)
    everyone: Policy = fixed_policy("")
    if name == "random":
        everyone = RandomPolicy({agent: env.action_space(agent) for agent in env.possible_agents})
    elif name == "reference":
        everyone = reference_policy(env)  # plays in that very copy
    with SyncVector(lambda: env, 1) as vector:
        team = dict.fromkeys(env.possible_agents, everyone)
        return evaluate_on(RolloutCollector(vector, team), seeds_of(id).seeds, greedy=False).episodes
