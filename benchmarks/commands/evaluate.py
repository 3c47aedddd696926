"""`collm evaluate [DIR …] [--model TEAM …]`: evaluate teams on held-out tasks and store their episodes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text
from tyro.conf import Positional

from ..._json import read_json
from ..._ownership import owned, refuse_foreign_files, write_text
from ..._progress import observing, phase
from ..._ranges import Also, Count, Needs
from ..._terminal import print_line, shown, terminal
from ...agents.config import ModelConfig
from ...algorithms.runs.files import CONFIG_FILE, read_config
from ..arguments import TrustArguments, keyword_arguments, parsed
from ..errors import UserError, check_folder, refusals
from ..sharing.hub import run_folder

if TYPE_CHECKING:
    from ...algorithms.rollout.episode import Episode
    from ...algorithms.rollout.intervals import Interval
    from ...algorithms.runs.api import Run
    from ...algorithms.runs.evaluation import EvaluationResult

LEADERBOARD = "leaderboard.json"
OUTSIDE_SUITES = Needs("a call without --suite", lambda call: call.suite is None)
Played = Literal["sampled", "greedy"]
EXAMPLES = (
    "collm evaluate runs/build",
    "collm evaluate --model Qwen/Qwen3-0.6B --env collm/MiniCode-v1 --is-chat --episodes 50",
    "collm evaluate --model tiny,runs/a/agents/main_0 --env collm/MiniCode-v1",
    "collm evaluate owner/name --env collm/MiniBuild-v0",
    "collm evaluate --suite core --model tiny reference",
    "collm evaluate runs/a runs/b --model tiny openai:my-model@http://localhost:8000 --env collm/MiniCode-v1",
)


def _has_models(call: EvaluateArguments) -> bool:
    return bool(call.models) or not all(map(Path.is_dir, call.directories))  # a hub repository can be a model


@dataclass(frozen=True, kw_only=True)
class EvaluateArguments(TrustArguments):
    """Evaluate trained teams or models on held-out tasks. With several teams, a leaderboard is written."""

    directories: Positional[tuple[Path, ...]] = ()
    """Run directories of `collm train`, or teams of the Hugging Face hub (owner/name, see `collm push`)."""
    models: Annotated[tuple[str, ...], Also("model", "model_name_or_path")] = ()
    """Teams of models without a run: one model for all agents, or one per agent separated by commas. A model is a
    folder, a hub name, "tiny", a registered policy, or openai:MODEL@URL (a chat server)."""
    suite: Literal["core"] | None = None
    """Suite of environments with fixed held-out seeds. core: all of collm's environments, or only --env.
    With a suite, --model also accepts reference, random and empty. None: one environment."""
    env: str | None = None
    """Id of the environment. None: the environment of the runs."""
    env_kwargs: Annotated[tuple[str, ...], OUTSIDE_SUITES] = ()
    """Arguments of the environment that differ from those in training, as key=value. Values may be JSON."""
    episodes: Annotated[Count, OUTSIDE_SUITES] = 100
    """Number of episodes per team and decoding mode (see --played)."""
    played: tuple[Played, ...] = ("sampled", "greedy")
    """Decoding modes: sample tokens as in training (sampled), take the most likely token (greedy), or both."""
    eval_max_turns: Annotated[Count | None, OUTSIDE_SUITES] = None
    """Number of joint turns after which an episode is truncated. None: the limit in the run's settings. For models
    without a run: the limit of the environment, or 1,000 if the environment has no limit."""
    split: Annotated[str, OUTSIDE_SUITES] = "test"
    """Split of the environment's tasks, such as train or test. Ignored if the environment has no splits."""
    out: Annotated[Path | None, Also("output_dir")] = None
    """Folder for episodes and leaderboard. None: the run's folder for a single run, else a new folder in runs/."""
    json: bool = False
    """Print the results as JSON, without other output."""
    transcripts: bool = True
    """Print the best and the worst episode, if a single team is evaluated."""
    model: Annotated[ModelConfig, Needs("--model, because runs have their own models", _has_models)] = field(
        default_factory=ModelConfig
    )


def run(args: Sequence[str]) -> None:
    arguments = parsed(EvaluateArguments, "evaluate", args, left_out=("model",), examples=EXAMPLES)
    with refusals():
        arguments, folders = with_downloads(arguments)
    (evaluate_teams if arguments.suite is None else play_suite)(arguments, folders, terminal())


@dataclass(frozen=True)
class Entry:
    """Results of a team, for the leaderboard."""

    team: str  # run directory, or names of the models
    returns: Mapping[str, Interval]  # mean returns; keys: decoding modes ("sampled", "greedy")
    terms: Mapping[str, Mapping[str, Interval]]  # means of reward terms and metrics; keys: decoding mode, then name
    episodes: str  # file that contains all episodes of the team
    usage: Sequence[str] = ()  # texts about requests, tokens and costs of chat servers, one per model
    agent_returns: Mapping[str, Mapping[str, Interval]] = field(default_factory=dict)
    """Mean returns; keys: decoding mode, then agent. Empty if the agents have common interests."""
    welfare: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # keys: decoding mode, then measure

    @property
    def cells(self) -> dict[str, Interval]:
        """Columns of the table: mean return of the team and, without common interests, of each agent."""
        own = {f"{how}, {agent}": each for how, found in self.agent_returns.items() for agent, each in found.items()}
        return {**self.returns, **own}

    def to_json(self) -> dict[str, Any]:
        empty = {name for name in ("agent_returns", "welfare") if not getattr(self, name)}
        return {name: value for name, value in asdict(self).items() if name not in empty}


def with_downloads(arguments: EvaluateArguments) -> tuple[EvaluateArguments, list[Path]]:
    """Download teams of the hub. Return the arguments, and the local folder of each run in `directories`.

    A repository with a single model is moved to `models`. Raises for folders without a run, before torch is imported.
    """
    directories, folders, models = [], [], []
    for directory in arguments.directories:
        folder = run_folder(directory, trust=arguments.trust)
        if folder != directory and "model_type" in read_json(folder / CONFIG_FILE):
            models.append(directory.as_posix())
        else:
            read_config(folder)
            directories.append(directory)
            folders.append(folder)
    return replace(arguments, directories=tuple(directories), models=(*models, *arguments.models)), folders


def evaluate_teams(arguments: EvaluateArguments, folders: Sequence[Path], console: Console) -> None:
    """Evaluate each team, print a table, and write all episodes. With several teams, write a leaderboard too."""
    from ...agents.language.chat import told_usage  # late imports: help needs no torch
    from ...algorithms.runs.files import JsonLines
    from ...algorithms.runs.loggers.display import ProgressLines
    from ...algorithms.runs.records import episode_records

    with refusals():
        check_call(arguments)
        kwargs = keyword_arguments(arguments.env_kwargs)
        folder = folder_of(arguments, folders)
        if arguments.out is not None:
            check_folder(folder, "--out")
        # Check all inputs first, because an evaluation takes minutes.
        teams = list(loaded(arguments, folders, folder, kwargs))
        check_folder(folder, "run directory" if arguments.out is None else "--out")
        names = [*map(str, arguments.directories), *arguments.models]
        files = [log_name(arguments, number, name) for number, name in enumerate(names)]
        refuse_foreign_files(folder, [*files, *([LEADERBOARD] if len(names) > 1 else ())])
        common = {team.experiment.env for team in teams}
        if len(common) > 1:
            raise UserError(f"the runs were trained in {', '.join(sorted(common))}; choose one environment: --env ID")
    entries = []
    lines = ProgressLines(terminal(stderr=True))
    for number, team in enumerate(teams):
        name = names[number]
        with refusals():
            # Only runs need the arguments here: the environments of models were created with them.
            given = kwargs if number < len(arguments.directories) and arguments.env is None else {}
            results: dict[str, EvaluationResult] = {}
            for mode in dict.fromkeys(arguments.played):
                with observing(lines), phase(f"{name}, {mode}"):
                    results[mode] = team.evaluate(
                        arguments.episodes,
                        greedy=mode == "greedy",
                        split=arguments.split,
                        eval_max_turns=arguments.eval_max_turns,
                        **given,
                    )
            for how, result in results.items():
                if result.num_cut:
                    print_line(f"{name}, {how}: {result.cut_line()}", lines.console)
        log = folder / files[number]
        played: dict[str, Any] = {"env": team.experiment.env, "env_kwargs": {**team.experiment.env_kwargs, **given}}
        with owned(folder, files[number]) as new:
            for how, result in results.items():
                has_own = bool(result.agent_returns)
                JsonLines(new).write(episode_records(result.episodes, has_own_returns=has_own, policy=how, **played))
        returns = {how: result.team_return for how, result in results.items()}
        terms = {how: terms_of(result) for how, result in results.items()}
        agents = {how: result.agent_returns for how, result in results.items() if result.agent_returns}
        measures = {how: found for how, result in results.items() if (found := welfare_of(result))}
        entries.append(Entry(name, returns, terms, str(log), told_usage(team.policies.values()), agents, measures))
        if not arguments.json and len(teams) == 1:
            shown_team(console, team, results, arguments, log)
    entries.sort(key=lambda entry: -next(iter(entry.returns.values())).value)
    call = {"env": teams[0].experiment.env, "env_kwargs": kwargs, "split": arguments.split}
    board = {**call, "num_episodes": arguments.episodes, "entries": [entry.to_json() for entry in entries]}
    text = json.dumps(board, indent=2, ensure_ascii=False)
    if len(teams) > 1:
        write_text(folder, LEADERBOARD, text + "\n")
    if arguments.json:
        print(text)
    else:
        if len(teams) > 1:
            title = f"{call['env']}, split {arguments.split}, {arguments.episodes} episodes: mean return [95 %]"
            shown_board(console, title, entries)
            console.print(f"all episodes and the table: {shown(folder)}", markup=False, soft_wrap=True)
        for line in (line for entry in entries for line in entry.usage):
            console.print(shown(line), markup=False)


def play_suite(arguments: EvaluateArguments, folders: Sequence[Path], console: Console) -> None:
    from ..core.command import evaluate_suite

    with refusals():
        if not (arguments.directories or arguments.models):
            raise UserError("no team is given; give --model or run directories")
        folder = arguments.out or Path("runs") / f"{arguments.suite}-{datetime.now():%Y%m%d-%H%M%S}"
        check_folder(folder, "--out")
        evaluate_suite(
            console,
            folder,
            directories=folders,
            models=arguments.models,
            ids=() if arguments.env is None else (arguments.env,),
            ways=tuple(dict.fromkeys(arguments.played)),
            model=arguments.model,
            trust=arguments.trust,
            is_json=arguments.json,
        )


def check_call(arguments: EvaluateArguments) -> None:
    if not arguments.directories and not arguments.models:
        raise UserError("no team is given; give a run directory, or --model with --env")
    if arguments.models and arguments.env is None and not arguments.directories:
        raise UserError(f"--model {' '.join(arguments.models)} needs --env ID; `collm envs` lists the environments")
    if not arguments.played:
        raise UserError("--played is empty; give sampled, greedy, or both")


def folder_of(arguments: EvaluateArguments, folders: Sequence[Path]) -> Path:
    if arguments.out is not None:
        return arguments.out
    if len(folders) == 1 and not arguments.models and arguments.directories == tuple(folders):
        return folders[0]
    return Path("runs") / f"evaluation-{datetime.now():%Y%m%d-%H%M%S}"


def log_name(arguments: EvaluateArguments, number: int, name: str) -> str:
    if len(arguments.directories) + len(arguments.models) == 1:
        return f"evaluation-{arguments.split}.jsonl"
    plain = re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-")[-60:]
    return f"evaluation-{arguments.split}-{number}-{plain}.jsonl"


def loaded(
    arguments: EvaluateArguments, folders: Sequence[Path], out: Path, kwargs: Mapping[str, Any]
) -> Iterator[Run]:

    from ...agents.loading import chat_encoders, chat_lines
    from ...algorithms.runs.api import load_run, untrained

    env = arguments.env
    for directory in folders:
        team = load_run(directory, env=env, trust=arguments.trust)
        if env is not None:
            team = replace(
                team, experiment=replace(team.experiment, env_kwargs={**team.experiment.env_kwargs, **kwargs})
            )
        env_of_runs = team.experiment
        yield team
    for name in arguments.models:
        where, given = (env, kwargs) if env is not None else (env_of_runs.env, {**env_of_runs.env_kwargs, **kwargs})
        model = replace(arguments.model, model=name)
        for line in chat_lines(model, chat_encoders(model)):
            print_line(line, terminal(stderr=True))
        yield untrained(model, where, out, **given)


def terms_of(result: EvaluationResult) -> dict[str, Interval]:
    """Means of reward terms and metrics with 95 % intervals. Episodes without a metric are excluded from its mean."""
    from ...algorithms.rollout.intervals import bootstrap_interval
    from ...algorithms.rollout.summary import episode_terms

    found = [episode_terms(episode) for episode in result.episodes]
    names = sorted({name for terms in found for name in terms if name.startswith(("reward/", "metric/"))})
    return {name: bootstrap_interval([terms[name] for terms in found if name in terms]) for name in names}


def welfare_of(result: EvaluationResult) -> dict[str, float]:
    """Welfare measures of the agents' mean returns. Empty unless the agents have mixed interests."""
    return {name: value for name, value in result.metrics.items() if name.startswith("welfare/")}


def shown_team(
    console: Console, team: Run, results: Mapping[str, EvaluationResult], arguments: EvaluateArguments, log: Path
) -> None:
    learned = "" if team.update is None else f" after update {team.update}"
    title = f"{team.experiment.env}, split {arguments.split}, {arguments.episodes} episodes{learned}: mean [95 %]"
    table = Table("", *results, title=Text(shown(title)), title_justify="left")
    table.add_row("return", *(str(result.team_return) for result in results.values()))
    for agent in next(iter(results.values())).agent_returns:
        table.add_row(f"return of {agent}", *(str(result.agent_returns[agent]) for result in results.values()))
    measures = [welfare_of(result) for result in results.values()]
    for name in sorted({name for named in measures for name in named}):
        table.add_row(name, *(f"{named[name]:.3f}" if name in named else "-" for named in measures))
    for difficulty in sorted({each for result in results.values() for each in result.by_difficulty}):
        found = [result.by_difficulty.get(difficulty) for result in results.values()]
        table.add_row(
            f"return, difficulty {difficulty}", *("-" if each is None else str(each.team_return) for each in found)
        )
        rates = ["-" if each is None or each.success is None else str(each.success) for each in found]
        table.add_row(f"success, difficulty {difficulty}", *rates)
    terms = [terms_of(result) for result in results.values()]
    for name in sorted({name for named in terms for name in named}):
        table.add_row(Text(shown(name)), *(str(named.get(name, "-")) for named in terms))
    console.print(table)
    if arguments.transcripts:
        how, result = next(iter(results.items()))
        show(console, f"best {how} episode", result.best)
        show(console, f"worst {how} episode", result.worst)
    console.print(f"all episodes: {shown(log)}", markup=False, soft_wrap=True)


def shown_board(console: Console, title: str, entries: Sequence[Entry]) -> None:
    table = Table("", "team", *entries[0].cells, title=Text(shown(title)), title_justify="left")
    for place, entry in enumerate(entries, 1):
        table.add_row(str(place), Text(shown(entry.team)), *map(str, entry.cells.values()))
    console.print(table)


def show(console: Console, title: str, episode: Episode) -> None:
    """Print the messages of each agent in an episode. Texts that the agent wrote are green."""
    from ...envs.core import messages_of

    for agent, track in episode.tracks.items():
        text, final = Text(), episode.finals[agent]
        if isinstance(final, str):
            for message in messages_of(final):
                text.append(shown(message.content) + "\n", style="green" if message.role == "assistant" else "")
        else:
            text.append(shown("\n".join(str(turn.completion.action) for turn in track)))
        heading = f"{title}: {agent}, return {episode.own_return(agent):.3f}, seed {episode.seed}"
        console.print(Panel(text, title=Text(shown(heading)), title_align="left"))
