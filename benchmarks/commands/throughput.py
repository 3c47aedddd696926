"""`collm throughput [rollout|decode|update|threads|comlrl|sandbox|games|all|gpu]`: the speed of this machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import indent
from typing import Literal

from tyro.conf import Positional

from ..._ownership import refuse_foreign_files, write_text
from ..._ranges import Checked, Count, Positive
from ..._terminal import terminal
from ..arguments import parsed
from ..errors import UserError, check_folder, refusals
from ..throughput.timing import Watch, watching


@dataclass(frozen=True, kw_only=True)
class ThroughputArguments(Checked):
    """Measure this machine: rates per CPU second, and their ratios within one run."""

    what: Positional[Literal["rollout", "decode", "update", "threads", "comlrl", "sandbox", "games", "all"]] = "rollout"
    """Measurement: environment steps by phase (rollout); tokens, and FLOP/s as a share of the machine's limit (decode);
    learning by phase (update); two models one after the other and side by side, by wall time (threads); whole training
    steps beside comlrl (comlrl); runs of untrusted code (sandbox); turns of the building games (games);
    or all.
    `collm throughput gpu` has options of its own."""
    env: str = "collm/MiniWriting-v2"
    """Registered id of the text environment that rollout and update play."""
    repeats: Count = 5
    """Rounds in which the compared workloads take turns, after one to warm up; medians count. The command looks at the
    load of other processes before and after each round."""
    out: Path | None = None
    """Folder for the tables as Markdown and for the figure of how an update's cost grows; None: print only."""


@dataclass(frozen=True, kw_only=True)
class GpuArguments(Checked):
    """Execute the GPU plan, or go on with it: laws, decoding, updates, memory; results are kept after every
    measurement."""

    out: Path
    """Folder for the results: a JSON file per part, and all tables as README.md."""
    parts: str = "all"
    """Parts of the plan, separated by commas: laws, bf16, head, decode, update, memory, team, offload, ranks. "all":
    all of them."""
    tiny: bool = False
    """Tiny shapes, which a CPU computes in a minute or two: the plan itself is tried out, and no speed."""
    minutes: Positive = 7.0
    """Minutes after which no measurement begins; the same command goes on with what is left."""
    repeats: Count = 5
    """Rounds of every measurement, after one to warm up."""


def run(args: Sequence[str]) -> None:
    if args and args[0] == "gpu":
        run_gpu_plan(parsed(GpuArguments, "throughput gpu", args[1:]))
        return
    arguments = parsed(ThroughputArguments, "throughput", args)

    import torch  # here, and below: help needs none of it
    from transformers.utils import logging as transformers_logging

    from ..throughput.update import FIGURE

    transformers_logging.disable_progress_bar()
    console = terminal()
    torch.set_num_threads(1)
    if arguments.out is not None:
        check_folder(arguments.out, "--out")
        chosen = MEASUREMENTS if arguments.what == "all" else (arguments.what,)
        refuse_foreign_files(arguments.out, [FIGURE, *(f"{name}.md" for name in chosen)])
    for name, measured in MEASUREMENTS.items():
        if arguments.what in (name, "all"):
            with refusals(), watching(Watch()) as watch:
                found = f"{measured(arguments)}\n\n{watch.verdict()}"
            console.print(found, highlight=False, markup=False, soft_wrap=True)
            if arguments.out is not None:
                write_text(arguments.out, f"{name}.md", found + "\n")


def run_gpu_plan(arguments: GpuArguments) -> None:
    """Make what is left of the plan's measurements.

    Raises:
        UserError: without a GPU unless the shapes are tiny, for an unknown part, or if a measurement failed.
    """
    import torch
    from transformers.utils import logging as transformers_logging

    from ..throughput.gpu import plan as gpu_plan
    from ..throughput.gpu.results import HEADER, TABLES, Results, Setting

    transformers_logging.disable_progress_bar()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device.type == "cpu":
        if not arguments.tiny:
            raise UserError("torch sees no GPU; use --tiny to try the plan out on the CPU, with tiny shapes")
        torch.set_num_threads(1)
    known = {part.name: part for part in gpu_plan.PARTS}
    names = list(known) if arguments.parts == "all" else arguments.parts.split(",")
    unknown = [name for name in names if name not in known]
    if unknown:
        raise UserError(f"the plan has no part {unknown[0]!r}; give some of {','.join(known)}, or all")
    check_folder(arguments.out, "--out")
    refuse_foreign_files(arguments.out, [HEADER, TABLES, *(f"{name}.json" for name in known)])
    console = terminal()

    def say(line: str) -> None:
        console.print(line, highlight=False, markup=False, soft_wrap=True)

    results = Results(arguments.out, Setting(device, arguments.tiny, arguments.repeats))
    num_left, failed = gpu_plan.run(results, [known[name] for name in names], arguments.minutes, say)
    say(f"{num_left} measurements are left{': run the same command again' if num_left else ''}; {arguments.out}")
    if failed:
        raise UserError(f"{len(failed)} measurements failed: {'; '.join(failed)}; the JSON files have the tracebacks")


def _rollout(arguments: ThroughputArguments) -> str:
    from ..throughput import rollout

    rows = rollout.measure(arguments.env, repeats=arguments.repeats)
    phases = rollout.phases(arguments.env, repeats=arguments.repeats)
    return f"{rollout.table(rows, arguments.env)}\n\n{rollout.phase_table(phases, arguments.env)}"


def _decode(arguments: ThroughputArguments) -> str:
    from ..throughput import decode, limit

    compared = decode.table(decode.rows(arguments.repeats))
    return f"{compared}\n\n{limit.table(limit.measure(arguments.repeats))}"


def _update(arguments: ThroughputArguments) -> str:
    from ..throughput import update

    return update.tables(arguments.env, arguments.repeats, arguments.out)


def _comlrl(arguments: ThroughputArguments) -> str:
    from ..throughput import reference

    reason = reference.missing()
    if reason is not None:
        return f"Not compared with comlrl: {reason}."
    one_core = reference.table(reference.measure(arguments.repeats))
    all_cores = reference.table_on_all_cores(reference.measure_on_all_cores(arguments.repeats))
    return f"{one_core}\n\n{all_cores}"


def _threads(arguments: ThroughputArguments) -> str:
    from ..throughput import side_by_side

    before = side_by_side.load()
    rows = side_by_side.measure(arguments.repeats)
    return side_by_side.table(rows, (before, side_by_side.load()))


def _sandbox(arguments: ThroughputArguments) -> str:
    from ..throughput import sandbox

    return indent(sandbox.table(sandbox.measure(num_rounds=arguments.repeats)), "    ")


def _games(_: ThroughputArguments) -> str:
    from ..throughput import games

    return games.table(games.measure())


MEASUREMENTS: Mapping[str, Callable[[ThroughputArguments], str]] = {
    "rollout": _rollout,
    "decode": _decode,
    "update": _update,
    "threads": _threads,
    "comlrl": _comlrl,
    "sandbox": _sandbox,
    "games": _games,
}
