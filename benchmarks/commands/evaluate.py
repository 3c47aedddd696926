"""`collm evaluate DIR`: returns of a trained team on held-out tasks, greedy and sampled, and two of its episodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text
from tyro.conf import Positional

from ..._ranges import Checked, Count
from ..._terminal import shown
from ...algorithms.rollout.episode import Episode
from ...algorithms.rollout.intervals import bootstrap_interval
from ...algorithms.rollout.summary import episode_terms
from ...algorithms.runs.api import load_run
from ...algorithms.runs.loggers import JsonLines
from ...algorithms.runs.records import episode_records
from ...envs.core import messages_of
from ..arguments import keyword_arguments, parsed
from ..errors import check_folder, refusals


@dataclass(frozen=True, kw_only=True)
class EvaluateArguments(Checked):
    """Let a trained team play held-out tasks."""

    directory: Positional[Path]
    """Run directory of `collm train`."""
    episodes: Count = 100
    """Episodes to play greedily, and as many again sampled."""
    split: str = "test"
    """Split of the environment's tasks, such as train or test; ignored where it has none."""
    env_kwargs: tuple[str, ...] = ()
    """Arguments of the environment that differ from training's, as key=value; values may be JSON."""
    transcripts: bool = True
    """Print the best and the worst sampled episode."""
    trust: bool = False
    """Import an environment that the run names as package.module:name. Only for folders whose author you trust."""


def run(args: Sequence[str]) -> None:
    evaluate_run(parsed(EvaluateArguments, "evaluate", args), Console())


def evaluate_run(arguments: EvaluateArguments, console: Console) -> None:
    """Play, print the table and two episodes, and write all episodes into the run directory."""
    with refusals():
        kwargs = keyword_arguments(arguments.env_kwargs)
        trained = load_run(arguments.directory, trust=arguments.trust)
        check_folder(arguments.directory, "run directory")
        results = {
            name: trained.evaluate(arguments.episodes, greedy=greedy, split=arguments.split, **kwargs)
            for name, greedy in (("sampled", False), ("greedy", True))
        }
    learned = "" if trained.update is None else f" after update {trained.update}"
    title = f"{trained.experiment.env}, split {arguments.split}, {arguments.episodes} episodes{learned}: mean [95 %]"
    table = Table("", *results, title=Text(shown(title)), title_justify="left")
    table.add_row("return", *(str(result.team_return) for result in results.values()))
    for difficulty in sorted({each for result in results.values() for each in result.by_difficulty}):
        found = [result.by_difficulty.get(difficulty) for result in results.values()]
        table.add_row(
            f"return, difficulty {difficulty}", *("-" if each is None else str(each.team_return) for each in found)
        )
        rates = ["-" if each is None or each.success is None else str(each.success) for each in found]
        table.add_row(f"success, difficulty {difficulty}", *rates)
    terms = [[episode_terms(episode) for episode in result.episodes] for result in results.values()]
    for name in sorted({name for found in terms for episode in found for name in episode}):
        if name.startswith(("reward/", "metric/")):
            table.add_row(Text(shown(name)), *(interval_of(name, found) for found in terms))
    console.print(table)
    log = arguments.directory / f"evaluation-{arguments.split}.jsonl"
    log.unlink(missing_ok=True)
    for name, result in results.items():
        JsonLines(log).write(episode_records(result.episodes, policy=name))
    if arguments.transcripts:
        show(console, "best sampled episode", results["sampled"].best)
        show(console, "worst sampled episode", results["sampled"].worst)
    console.print(f"all episodes: {shown(log)}", markup=False)


def interval_of(name: str, terms: Sequence[Mapping[str, float]]) -> str:
    """Mean of a reward term or metric with its 95 % interval, over the episodes that have it; "-" where none does."""
    values = [episode[name] for episode in terms if name in episode]
    return str(bootstrap_interval(values)) if values else "-"


def show(console: Console, title: str, episode: Episode) -> None:
    """Print an episode: each agent's history, with its own texts in colour."""
    for agent, track in episode.tracks.items():
        text = Text()
        final = episode.finals[agent]
        if isinstance(final, str):
            for message in messages_of(final):
                text.append(shown(message.content) + "\n", style="green" if message.role == "assistant" else "")
        else:
            text.append(shown("\n".join(str(turn.completion.action) for turn in track)))
        own = sum(turn.reward for turn in track)
        heading = f"{title}: {agent}, return {own:.3f}, seed {episode.seed}"
        console.print(Panel(text, title=Text(shown(heading)), title_align="left"))
