"""`collm envs`: the registered environments, in a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.progress import track
from rich.table import Table

from ..envs.registration import make, specs
from .arguments import parsed
from .cli import refusals
from .scores import PLAYERS, mean_scores


@dataclass(frozen=True, kw_only=True)
class ListArguments:
    """List the registered environments."""

    scores: bool = False
    """Also let the reference, random and empty players play, and show their mean team returns."""
    episodes: int = 20
    """That each of them plays."""


def run(args: Sequence[str]) -> None:
    arguments = parsed(ListArguments, "envs", args)
    console = Console()
    table = Table("id", "turns", "what", box=None, pad_edge=False, header_style="bold")
    if arguments.scores:
        for name in PLAYERS:
            table.add_column(name, justify="right")
    with refusals():
        found = specs()
    for spec in track(found, "playing", console=Console(stderr=True), transient=True, disable=not arguments.scores):
        row = [spec.id, "" if spec.max_turns is None else str(spec.max_turns), spec.summary]
        if arguments.scores:
            with refusals():
                env = make(spec.id)
            scores = mean_scores(env, arguments.episodes)
            env.close()
            row += ["-" if value is None else f"{value:.3f}" for value in scores.values()]
        table.add_row(*row)
    console.print(table)
