"""`collm throughput [rollout|decode|update|threads|sandbox|games|all]`: this machine's speed, beside references."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import indent
from typing import Literal

import torch
from rich.console import Console
from transformers.utils import logging as transformers_logging
from tyro.conf import Positional

from ..._ranges import Checked, Count
from ..arguments import parsed
from ..errors import check_folder, refusals
from ..markdown import markdown_table
from ..throughput import decode as throughput_decode
from ..throughput import games as throughput_games
from ..throughput import limit as throughput_limit
from ..throughput import rollout as throughput_rollout
from ..throughput import sandbox as throughput_sandbox
from ..throughput import side_by_side as throughput_threads
from ..throughput import update as throughput_update


@dataclass(frozen=True, kw_only=True)
class ThroughputArguments(Checked):
    """Measure this machine: rates per CPU second, and their ratios within one run."""

    what: Positional[Literal["rollout", "decode", "update", "threads", "sandbox", "games", "all"]] = "rollout"
    """Measurement: environment steps by phase (rollout); tokens, and FLOP/s as a share of the machine's limit (decode);
    learning by phase (update); two models in one thread and in two, by wall time (threads); runs of untrusted code
    (sandbox); turns of the building games (games); or all."""
    env: str = throughput_rollout.ENV
    """Registered id of the text environment that rollout and update play."""
    repeats: Count = 3
    """Rounds in which the compared workloads take turns, after one to warm up; medians count."""
    out: Path | None = None
    """Folder for the tables as Markdown and for the figure of how an update's cost grows; None: print only."""


def run(args: Sequence[str]) -> None:
    transformers_logging.disable_progress_bar()
    arguments = parsed(ThroughputArguments, "throughput", args)
    console = Console()
    torch.set_num_threads(1)
    if arguments.out is not None:
        check_folder(arguments.out, "--out")
        arguments.out.mkdir(parents=True, exist_ok=True)
    for name, measured in MEASUREMENTS.items():
        if arguments.what in (name, "all"):
            with refusals():
                found = measured(arguments)
            console.print(found, highlight=False, markup=False, soft_wrap=True)
            if arguments.out is not None:
                (arguments.out / f"{name}.md").write_text(found + "\n")


def _rollout(arguments: ThroughputArguments) -> str:
    rows = throughput_rollout.measure(arguments.env, repeats=arguments.repeats)
    phases = throughput_rollout.phases(arguments.env, repeats=arguments.repeats)
    return f"{rollout_table(rows, arguments.env)}\n\n{throughput_rollout.phase_table(phases, arguments.env)}"


def _decode(arguments: ThroughputArguments) -> str:
    compared = throughput_decode.table(throughput_decode.rows(arguments.repeats))
    return f"{compared}\n\n{throughput_limit.table(throughput_limit.measure(arguments.repeats))}"


def _update(arguments: ThroughputArguments) -> str:
    return throughput_update.tables(arguments.env, arguments.repeats, arguments.out)


def _threads(arguments: ThroughputArguments) -> str:
    before = throughput_threads.load()
    rows = throughput_threads.measure(arguments.repeats)
    return throughput_threads.table(rows, (before, throughput_threads.load()))


def _sandbox(arguments: ThroughputArguments) -> str:
    rows = throughput_sandbox.measure(num_rounds=arguments.repeats)
    return indent(throughput_sandbox.table(rows), "    ")


def _games(_: ThroughputArguments) -> str:
    return throughput_games.table(throughput_games.measure())


MEASUREMENTS: Mapping[str, Callable[[ThroughputArguments], str]] = {
    "rollout": _rollout,
    "decode": _decode,
    "update": _update,
    "threads": _threads,
    "sandbox": _sandbox,
    "games": _games,
}


def rollout_table(rows: Sequence[throughput_rollout.RolloutRow], env: str) -> str:
    """Steps and tokens per CPU second, and their ratio to the first row's, as Markdown."""
    cells = [
        (row.name, f"{row.steps_per_s:.1f}", f"{row.tokens_per_s:.0f}", f"{row.steps_per_s / rows[0].steps_per_s:.1f}x")
        for row in rows
    ]
    table = markdown_table(("", "environment steps", "tokens", "ratio"), cells)
    return f"{env}, rates per CPU second:\n\n{table}"
