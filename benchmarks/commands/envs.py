"""`collm envs`: table of the registered environments, on request with the scores of scripted players."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.markup import escape
from rich.progress import track
from rich.table import Table

from ..._ranges import Checked, Count
from ..._terminal import shown
from ...envs.players import PLAYERS
from ...envs.registration.registry import make, specs
from ..arguments import parsed
from ..errors import refusals
from .scores import mean_scores


@dataclass(frozen=True, kw_only=True)
class EnvsArguments(Checked):
    """List the registered environments."""

    scores: bool = False
    """Add mean team returns of the scripted players: reference, random and empty."""
    episodes: Count = 20
    """Episodes per scripted player."""


def run(args: Sequence[str]) -> None:
    arguments = parsed(EnvsArguments, "envs", args)
    console = Console()
    table = Table("id", "turns", "summary", box=None, pad_edge=False, header_style="bold")
    if arguments.scores:
        for name in PLAYERS:
            table.add_column(name, justify="right")
    with refusals():
        found = specs()
    for spec in track(found, "playing", console=Console(stderr=True), transient=True, disable=not arguments.scores):
        row = [shown(spec.id), "" if spec.max_turns is None else str(spec.max_turns), escape(shown(spec.summary))]
        if arguments.scores:
            with refusals():
                env = make(spec.id)
            scores = mean_scores(env, arguments.episodes)
            env.close()
            row += ["-" if value is None else f"{value:.3f}" for value in scores.values()]
        table.add_row(*row)
    console.print(table)
