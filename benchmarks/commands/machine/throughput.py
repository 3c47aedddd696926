"""`collm throughput [rollout|decode|update|all]`: measure the speed of this machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional

from ...._ownership import refuse_foreign_files, write_text
from ...._ranges import Checked, Count, Needs
from ...._terminal import terminal
from ...arguments import parsed
from ...errors import UserError, check_folder, refusals


@dataclass(frozen=True, kw_only=True)
class ThroughputArguments(Checked):
    """Measure the speed of rollouts, decoding and updates on this machine."""

    what: Positional[Literal["rollout", "decode", "update", "all"]] = "rollout"
    """Measurement. rollout: environment steps per second. decode: tokens per second, and FLOP/s as a fraction of the
    machine's limit. update: seconds of each phase of an update. all: all three."""
    env: Annotated[str, Needs("rollout, update or all", lambda call: call.what != "decode")] = "collm/MiniWriting-v2"
    """Registered id of the text environment for rollout and update."""
    device: str = "cpu"
    """Device of the models, such as cpu, cuda or cuda:1. Rates are per CPU second, or per second of a GPU."""
    repeats: Count = 5
    """Number of measured rounds, after one warm-up round. Workloads alternate within a round, and medians over rounds
    are printed. The CPU load of other processes is measured before and after each round."""
    out: Path | None = None
    """Output folder for the tables as Markdown. None: print the tables without storing them."""


def run(args: Sequence[str]) -> None:
    arguments = parsed(ThroughputArguments, "throughput", args)

    import torch  # late imports: help needs no torch

    from ....agents.loading import check_device
    from ....algorithms.runs.assembly.policies import writes_text
    from ....envs.registration.registry import make
    from ...throughput.timing import LoadWatch, watching

    console = terminal()
    torch.set_num_threads(1)
    check_device(arguments.device)
    with refusals():
        if not writes_text(make(arguments.env)):
            raise UserError(f"--env {arguments.env} has other actions than texts; give a text environment")
    if arguments.out is not None:
        check_folder(arguments.out, "--out")
        chosen = MEASUREMENTS if arguments.what == "all" else (arguments.what,)
        refuse_foreign_files(arguments.out, [f"{name}.md" for name in chosen])
    for name, measured in MEASUREMENTS.items():
        if arguments.what in (name, "all"):
            with refusals(), watching(LoadWatch()) as watch:
                found = f"{measured(arguments)}\n\n{watch.verdict()}"
            console.print(found, highlight=False, markup=False, soft_wrap=True)
            if arguments.out is not None:
                write_text(arguments.out, f"{name}.md", found + "\n")


def _rollout(arguments: ThroughputArguments) -> str:
    from ...throughput import rollout

    env, repeats, device = arguments.env, arguments.repeats, arguments.device
    return rollout.table(rollout.measure(env, repeats=repeats, device=device), env, device)


def _decode(arguments: ThroughputArguments) -> str:
    from ...throughput import decode, limit

    repeats, device = arguments.repeats, arguments.device
    compared = decode.table(decode.measure(repeats, device), device)
    return f"{compared}\n\n{limit.table(limit.measure(repeats, device), device)}"


def _update(arguments: ThroughputArguments) -> str:
    from ...throughput import update

    env, device = arguments.env, arguments.device
    return update.table(update.measure(env, arguments.repeats, device=device), env, device)


MEASUREMENTS: Mapping[str, Callable[[ThroughputArguments], str]] = {
    "rollout": _rollout,
    "decode": _decode,
    "update": _update,
}
