"""`collm envs`: list the registered environments, and optionally the returns of scripted players."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from rich.markup import escape
from rich.progress import track
from rich.table import Table

from ..._ranges import Checked, Count, Needs
from ..._terminal import print_line, shown, terminal
from ...envs.core import TextParallelEnv, declared_interests
from ...envs.players import HONEST_PLAYERS, PLAYERS, played_by_agents, scripted_player
from ...envs.registration.registry import EnvSpec, make, specs
from ..arguments import parsed
from ..errors import UserError, refusals

UNLIMITED = 10_000
"""Width of the table if the output is not a terminal. Each environment then fits on one line."""


@dataclass(frozen=True, kw_only=True)
class EnvsArguments(Checked):
    """List the registered environments."""

    scores: bool = False
    """Show mean returns of scripted players instead of the summaries. Players: reference, random, empty, and in some
    environments honest players with and without messages. If the agents' interests are not common, one return per
    agent. Also shows known returns of ideal teams, such as the optimum or an equilibrium."""
    episodes: Annotated[Count, Needs("--scores", lambda call: call.scores)] = 20
    """Number of episodes per scripted player."""
    json: bool = False
    """Print a JSON list of objects instead of the table."""


def run(args: Sequence[str]) -> None:
    arguments = parsed(EnvsArguments, "envs", args)
    with refusals():
        found = specs()
    is_quiet = arguments.json or not arguments.scores
    progress = track(found, "playing", console=terminal(stderr=True), transient=True, disable=is_quiet)
    rows = [described(spec, arguments.episodes if arguments.scores else None) for spec in progress]
    if arguments.json:
        print(json.dumps(rows, indent=2, ensure_ascii=False))
        return
    console = terminal()
    if not console.is_terminal or arguments.scores:  # the scores need more than 80 columns
        console = terminal(width=UNLIMITED)
    names = ("turns", "reward", "return", *((*PLAYERS, *HONEST_PLAYERS) if arguments.scores else ()))
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column("id", no_wrap=True, min_width=max((len(row["id"]) for row in rows), default=0))
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)
    if not arguments.scores:
        table.add_column("summary")
    for row in rows:
        if "error" in row:
            terminal(stderr=True).print(shown(f"{row['id']} cannot be made: {row['error']}"), markup=False)
            cells = ["?"] * (len(table.columns) - 1)
        else:
            turns = "-" if row["turns"] is None else str(row["turns"])
            cells = [turns, range_text(row["reward_range"]), range_text(row["return_range"])]
            cells += score_cells(row) if arguments.scores else [row["summary"]]
        table.add_row(*(escape(shown(cell)) for cell in (row["id"], *cells)))
    console.print(table)
    ideal = [f"  {row['id']}: {ceilings_text(row)}" for row in rows if row.get("ceilings") and arguments.scores]
    for line in ["ideal teams:", *ideal] if ideal else ():
        print_line(line, console)


def described(spec: EnvSpec, num_episodes: int | None) -> dict[str, Any]:
    """Describe an environment as a JSON object. Infinite and unknown numbers are null."""
    row: dict[str, Any] = {"id": spec.id, "summary": spec.summary, "max_new_tokens": spec.max_new_tokens}
    for name in ("reward_range", "return_range"):
        declared = getattr(spec, name)
        row[name] = declared and [bound if math.isfinite(bound) else None for bound in declared]
    try:
        with refusals():
            env = make(spec.id)
    except UserError as error:  # a broken plugin must not hide the other environments
        return row | {"error": str(error)}
    world = getattr(env, "unwrapped", env)
    limits = [spec.max_turns, world.max_turns if isinstance(world, TextParallelEnv) else None]
    turns = min((limit for limit in limits if limit is not None), default=None)
    row["summary"] = spec.summary or next(iter((type(world).__doc__ or "").strip().splitlines()), "")
    row |= {"agents": list(env.possible_agents), "turns": turns}
    if num_episodes is not None:
        found = agent_scores(env, num_episodes)
        row["scores"] = means(found)
        if declared_interests(env) != "common":
            row["agent_scores"] = found
        row["ceilings"] = dict(world.ceilings()) if isinstance(world, TextParallelEnv) else {}
    env.close()
    return row


def score_cells(row: Mapping[str, Any]) -> list[str]:
    """Format the scores of an environment. With returns per agent, they are separated by slashes."""
    own = row.get("agent_scores", {})
    values = {name: own[name].values() if own.get(name) else [mean] for name, mean in row["scores"].items()}
    return ["-" if None in each else "/".join(f"{value:.3f}" for value in each) for each in values.values()]


def ceilings_text(row: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value:.3f}" for name, value in row["ceilings"].items())


def range_text(declared: Sequence[float | None] | None) -> str:
    if declared is None:
        return "-"
    low, high = (f"{sign}inf" if bound is None else f"{bound:g}" for sign, bound in zip("- ", declared, strict=True))
    return f"{low}..{high.strip()}"


def means(scores: Mapping[str, Mapping[str, float] | None]) -> dict[str, float | None]:
    return {name: None if own is None else sum(own.values()) / len(own) for name, own in scores.items()}


def agent_scores(env: Any, num_episodes: int) -> Mapping[str, Mapping[str, float] | None]:
    """Mean return of each agent for each scripted player. All play the same seeds. None: there is no such player."""
    scores: dict[str, Mapping[str, float] | None] = {}
    for name in (*PLAYERS, *HONEST_PLAYERS):
        decide = scripted_player(env, name)
        if decide is None:
            scores[name] = None
        else:
            episodes = [played_by_agents(env, decide, seed)[0] for seed in range(num_episodes)]
            agents = dict.fromkeys(agent for returns in episodes for agent in returns)
            scores[name] = {
                agent: sum(returns.get(agent, 0.0) for returns in episodes) / num_episodes for agent in agents
            }
    return scores
