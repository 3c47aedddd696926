"""`collm evaluate DIR`: a trained team on held-out tasks, greedy and sampled, with its best and worst episode."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text
from transformers.utils import logging as transformers_logging
from tyro.conf import Positional

from ..algorithms.checkpoint import read_config
from ..algorithms.episode import Episode
from ..algorithms.evaluation import evaluate
from ..algorithms.experiment import MAX_DEFAULT_ENVS, Experiment
from ..algorithms.loggers import JsonLines
from ..algorithms.records import episode_records
from ..algorithms.rollout import RolloutCollector
from ..algorithms.summary import bootstrap_interval
from ..algorithms.teams import load_team
from ..envs.core import messages_of
from ..envs.registration import make
from .arguments import keyword_arguments, parsed
from .cli import refusals
from .training import choose_threads


@dataclass(frozen=True, kw_only=True)
class EvaluateArguments:
    """Let a trained team play held-out tasks."""

    directory: Positional[Path]
    """A run directory of `collm train`."""
    episodes: int = 100
    """Of each way of playing."""
    split: str = "test"
    """Of the environment's tasks, where it has splits."""
    env_kwargs: tuple[str, ...] = ()
    """Arguments that differ from training's, as key=value."""
    transcripts: bool = True
    """Print the best and the worst sampled episode."""


def run(args: Sequence[str]) -> None:
    transformers_logging.disable_progress_bar()
    report(parsed(EvaluateArguments, "evaluate", args), Console())


def report(arguments: EvaluateArguments, console: Console) -> None:
    """Play, print the table and two episodes, write all of them down."""
    with refusals():
        if arguments.episodes < 1:
            raise ValueError(f"--episodes must be at least 1, got {arguments.episodes}")
        experiment = Experiment.from_json(read_config(arguments.directory))
        kwargs = {**experiment.env_kwargs, **keyword_arguments(arguments.env_kwargs)}
        experiment = replace(experiment, env_kwargs=kwargs)
        env = make(experiment.env, **experiment.env_kwargs_of(arguments.split))
        agents = env.possible_agents
        env.close()
        policies = load_team(arguments.directory / "agents", agents, device=experiment.model.device)
        vector = experiment.make_vector(arguments.split, min(arguments.episodes, MAX_DEFAULT_ENVS))
    choose_threads(experiment.model, None)
    collector = RolloutCollector(vector, policies)
    results = {
        "sampled": evaluate(collector, arguments.episodes, greedy=False),
        "greedy": evaluate(collector, arguments.episodes, greedy=True),
    }
    vector.close()
    title = f"{experiment.env}, split {arguments.split}, {arguments.episodes} episodes: mean [95 %]"
    table = Table("", *results, title=title, title_justify="left")
    table.add_row("return", *(str(result.team_return) for result in results.values()))
    for name in sorted(results["sampled"].metrics):
        if name.startswith(("reward/", "metric/")):
            table.add_row(name, *(str(bootstrap_interval(_per_episode(r.episodes, name))) for r in results.values()))
    console.print(table)
    log = arguments.directory / f"evaluation-{arguments.split}.jsonl"
    log.unlink(missing_ok=True)
    for name, result in results.items():
        JsonLines(log).write(episode_records(result.episodes, policy=name))
    if arguments.transcripts:
        show(console, "best sampled episode", results["sampled"].best)
        show(console, "worst sampled episode", results["sampled"].worst)
    console.print(f"all episodes: {log}")


def show(console: Console, title: str, episode: Episode) -> None:
    """Print an episode: each agent's history, with its own texts in colour."""
    for agent, track in episode.tracks.items():
        text = Text()
        final = episode.finals[agent]
        if isinstance(final, str):
            for message in messages_of(final):
                text.append(message.content + "\n", style="green" if message.role == "assistant" else "")
        else:
            text.append("\n".join(str(turn.completion.action) for turn in track))
        own = sum(turn.reward for turn in track)
        console.print(Panel(text, title=f"{title}: {agent}, return {own:.3f}, seed {episode.seed}", title_align="left"))


def _per_episode(episodes: Sequence[Episode], name: str) -> list[float]:
    """A reward term's sum, or a metric's mean, over the turns of each episode."""
    values = []
    for episode in episodes:
        found = [info[name] for info in episode.infos if name in info]
        if found:
            values.append(sum(found) if name.startswith("reward/") else sum(found) / len(found))
    return values
