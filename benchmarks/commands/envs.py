"""`collm envs`: table of the registered environments, on request with the scores of scripted players."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.markup import escape
from rich.progress import track
from rich.table import Table

from ..._ranges import Checked, Count
from ..._terminal import shown, terminal
from ...envs.core import TextParallelEnv
from ...envs.players import HONEST_PLAYERS, PLAYERS, played, scripted_player
from ...envs.registration.registry import EnvSpec, Range, make, specs
from ..arguments import parsed
from ..errors import UserError, refusals

UNLIMITED = 10_000
"""Columns of an output that must not be cut: a line per environment, for programs to read."""


@dataclass(frozen=True, kw_only=True)
class EnvsArguments(Checked):
    """List the registered environments."""

    scores: bool = False
    """Mean team returns of the scripted players instead of the summaries: reference, random, empty and, where the
    environment has them, honest players without and with messages."""
    episodes: Count = 20
    """Episodes per scripted player."""
    json: bool = False
    """Print a list of objects as JSON in place of the table."""


def run(args: Sequence[str]) -> None:
    arguments = parsed(EnvsArguments, "envs", args)
    if arguments.json:
        print(json.dumps(list(described(arguments)), indent=2, ensure_ascii=False))
        return
    console = terminal()
    if not console.is_terminal or arguments.scores:  # the scores need more than 80 columns
        console = terminal(width=UNLIMITED)
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column("id", no_wrap=True, min_width=max((len(spec.id) for spec in specs()), default=0))
    for name in ("turns", "reward", "return", *((*PLAYERS, *HONEST_PLAYERS) if arguments.scores else ())):
        table.add_column(name, justify="right", no_wrap=True)
    if not arguments.scores:
        table.add_column("summary")
    with refusals():
        found = specs()
    for spec in track(found, "playing", console=terminal(stderr=True), transient=True, disable=not arguments.scores):
        try:
            with refusals():
                env = make(spec.id)
        except UserError as error:  # somebody's plugin need not hide all others
            terminal(stderr=True).print(shown(f"{spec.id} cannot be made: {error}"), markup=False)
            table.add_row(escape(shown(spec.id)), *["?"] * (len(table.columns) - 1))
            continue
        row = [
            escape(shown(spec.id)),
            num_turns(env, spec),
            range_text(spec.reward_range),
            range_text(spec.return_range),
        ]
        if arguments.scores:
            scores = mean_scores(env, arguments.episodes)
            row += ["-" if value is None else f"{value:.3f}" for value in scores.values()]
        else:
            row.append(escape(shown(spec.summary)))
        env.close()
        table.add_row(*row)
    console.print(table)


def described(arguments: EnvsArguments) -> Iterator[dict[str, Any]]:
    """Each environment as an object of JSON, which has no infinite numbers: null stands for them."""
    with refusals():
        found = specs()
    for spec in found:
        told: dict[str, Any] = {"id": spec.id, "summary": spec.summary, "max_new_tokens": spec.max_new_tokens}
        told |= {name: _bounds(getattr(spec, name)) for name in ("reward_range", "return_range")}
        try:
            with refusals():
                env = make(spec.id)
        except UserError as error:  # somebody's plugin need not hide all others
            yield told | {"error": str(error)}
            continue
        turns = num_turns(env, spec)
        told |= {"agents": list(env.possible_agents), "turns": int(turns) if turns.isdecimal() else None}
        if arguments.scores:
            told["scores"] = mean_scores(env, arguments.episodes)
        env.close()
        yield told


def _bounds(declared: Range | None) -> list[float | None] | None:
    return None if declared is None else [bound if math.isfinite(bound) else None for bound in declared]


def num_turns(env: object, spec: EnvSpec) -> str:
    """Turns of an episode at most: the game's own, or a limit from outside; "-" where neither is known."""
    own = getattr(env, "unwrapped", env)
    known = [spec.max_turns, own.max_turns if isinstance(own, TextParallelEnv) else None]
    return str(min((turns for turns in known if turns is not None), default="-"))


def range_text(declared: Range | None) -> str:
    """A declared range, "0..1"; "-" where none is."""
    return "-" if declared is None else "..".join(f"{bound:g}" for bound in declared)


def mean_scores(env: Any, num_episodes: int) -> Mapping[str, float | None]:
    """Mean team return of each scripted player on the same seeds; None where there is no such player."""
    scores: dict[str, float | None] = {}
    for name in (*PLAYERS, *HONEST_PLAYERS):
        decide = scripted_player(env, name)
        if decide is None:
            scores[name] = None
        else:
            scores[name] = sum(played(env, decide, seed)[0] for seed in range(num_episodes)) / num_episodes
    return scores
