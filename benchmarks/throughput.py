"""`collm throughput [rollout|decode|update|sandbox|all]`: what this machine does in a second, beside a yardstick."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from rich.console import Console
from rich.table import Table
from transformers.utils import logging as transformers_logging
from tyro.conf import Positional

from . import sandbox_throughput, throughput_decode, throughput_rollout, throughput_update
from .arguments import parsed
from .cli import refusals


@dataclass(frozen=True, kw_only=True)
class ThroughputArguments:
    """Measure this machine: rates per CPU second, and their ratios within one run."""

    what: Positional[Literal["rollout", "decode", "update", "sandbox", "all"]] = "rollout"
    """rollout: environment steps; decode: tokens; update: learning, by phase; sandbox: runs of untrusted code."""
    env: str = throughput_rollout.ENV
    """For rollout and update: a registered text environment."""
    repeats: int = 3
    """Interleaved repeats; the median counts."""


def run(args: Sequence[str]) -> None:
    transformers_logging.disable_progress_bar()
    arguments = parsed(ThroughputArguments, "throughput", args)
    console = Console()
    torch.set_num_threads(1)
    if arguments.what in ("rollout", "all"):
        with refusals():
            rows = throughput_rollout.measure(arguments.env, repeats=arguments.repeats)
        console.print(rollout_table(rows, arguments.env))
    if arguments.what in ("decode", "all"):
        console.print(throughput_decode.table_of(throughput_decode.rows(arguments.repeats)), highlight=False)
    if arguments.what in ("update", "all"):
        with refusals():
            found = throughput_update.tables(arguments.env, arguments.repeats)
        console.print(found, highlight=False, markup=False, soft_wrap=True)
    if arguments.what in ("sandbox", "all"):
        with refusals():
            console.print(sandbox_throughput.table(sandbox_throughput.measure()), highlight=False)


def rollout_table(rows: Sequence[throughput_rollout.RolloutRow], env: str) -> Table:
    """Steps and tokens a CPU second, and how many times the first row's."""
    title = f"{env}: rates per CPU second"
    table = Table("", title=title, title_justify="left")
    for header in ("environment steps", "tokens", "ratio"):
        table.add_column(header, justify="right")
    for row in rows:
        ratio = row.steps_per_s / rows[0].steps_per_s
        table.add_row(row.name, f"{row.steps_per_s:.1f}", f"{row.tokens_per_s:.0f}", f"{ratio:.1f}x")
    return table
