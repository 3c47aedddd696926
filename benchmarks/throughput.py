"""`collm throughput [rollout|decode|update|sandbox|all]`: what this machine does in a second, beside a yardstick."""

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

from . import sandbox_throughput, throughput_decode, throughput_limit, throughput_rollout, throughput_update
from .arguments import parsed
from .cli import refusals


@dataclass(frozen=True, kw_only=True)
class ThroughputArguments:
    """Measure this machine: rates per CPU second, and their ratios within one run."""

    what: Positional[Literal["rollout", "decode", "update", "sandbox", "all"]] = "rollout"
    """rollout: environment steps, by phase; decode: tokens, and the share of what the machine can multiply; update:
    learning, by phase; sandbox: runs of untrusted code."""
    env: str = throughput_rollout.ENV
    """For rollout and update: a registered text environment."""
    repeats: int = 3
    """Interleaved repeats; the median counts."""
    out: Path | None = None
    """A folder for the tables as Markdown, and for the figure of how an update's cost grows."""


def run(args: Sequence[str]) -> None:
    transformers_logging.disable_progress_bar()
    arguments = parsed(ThroughputArguments, "throughput", args)
    console = Console()
    torch.set_num_threads(1)
    if arguments.out is not None:
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
    contests = throughput_decode.table_of(throughput_decode.rows(arguments.repeats))
    return f"{contests}\n\n{throughput_limit.table(throughput_limit.measure(arguments.repeats))}"


def _update(arguments: ThroughputArguments) -> str:
    return throughput_update.tables(arguments.env, arguments.repeats, arguments.out)


def _sandbox(arguments: ThroughputArguments) -> str:
    return indent(sandbox_throughput.table(sandbox_throughput.measure()), "    ")


MEASUREMENTS: Mapping[str, Callable[[ThroughputArguments], str]] = {
    "rollout": _rollout,
    "decode": _decode,
    "update": _update,
    "sandbox": _sandbox,
}


def rollout_table(rows: Sequence[throughput_rollout.RolloutRow], env: str) -> str:
    """Steps and tokens a CPU second, and how many times the first row's, as Markdown."""
    lines = [
        f"{env}, rates per CPU second:",
        "",
        "| | environment steps | tokens | ratio |",
        "|---|---|---|---|",
    ]
    for row in rows:
        ratio = row.steps_per_s / rows[0].steps_per_s
        lines.append(f"| {row.name} | {row.steps_per_s:.1f} | {row.tokens_per_s:.0f} | {ratio:.1f}x |")
    return "\n".join(lines)
