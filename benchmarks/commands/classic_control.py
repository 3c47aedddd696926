"""`collm benchmark classic-control [run|table|plot]`: train on classic tasks with published scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tyro.conf import Positional

from ..._errors import nearest
from ..._ownership import refuse_foreign_files
from ..._ranges import Checked, Seed
from ..._terminal import terminal
from ..arguments import parsed
from ..errors import check_folder, refusals


@dataclass(frozen=True, kw_only=True)
class ClassicControlArguments(Checked):
    """Train on CartPole, Acrobot, Pendulum and simple_spread (needs mpe2), whose scores are published."""

    action: Positional[Literal["run", "table", "plot"]] = "table"
    """Action. run: train. table: print the results as Markdown. plot: write PNG figures of the results to --out."""
    tasks: Positional[tuple[str, ...]] = ()
    """Tasks to run: cartpole, acrobot, pendulum, pendulum-squashed, spread-ippo, spread-mappo, spread-ippo-long,
    spread-mappo-long. Default: all. A long task takes 20 minutes per seed on one core, the others one minute."""
    seeds: tuple[Seed, ...] = (0,)
    """Random seeds to run."""
    out: Path = Path("runs/classic_control")
    """Folder of the results, one JSON file per run."""


def run(args: Sequence[str]) -> None:
    arguments = parsed(ClassicControlArguments, "benchmark classic-control", args)

    import torch  # late import: help needs no torch

    from ..comparison.classic_control import CURVES, EXPERIMENTS, TORQUES, plot, run_seed, table

    console = terminal()
    torch.set_num_threads(1)
    with refusals():
        if unknown := [name for name in arguments.tasks if name not in EXPERIMENTS]:
            raise ValueError(f"task {unknown[0]!r} does not exist; {nearest(unknown[0], EXPERIMENTS)}")
        check_folder(arguments.out, "--out")
        if arguments.action != "run" and not any(arguments.out.glob("*-[0-9]*.json")):
            raise FileNotFoundError(f"{arguments.out} has no results; run tasks first, or give another --out")
        names = arguments.tasks or tuple(EXPERIMENTS)
        if arguments.action == "run":
            refuse_foreign_files(arguments.out, [f"{name}-{seed}.json" for name in names for seed in arguments.seeds])
            for name in names:
                EXPERIMENTS[name].check()
        elif arguments.action == "plot":
            refuse_foreign_files(arguments.out, [CURVES, TORQUES])
    if arguments.action == "plot":
        plot(arguments.out)
        console.print(f"figures: {arguments.out}")
    elif arguments.action == "table":
        print(table(arguments.out))
    else:
        for name in names:
            for seed in arguments.seeds:
                result = run_seed(name, seed, arguments.out)
                returns = ", ".join(f"{how} {result[how]['mean']:.1f}" for how in ("untrained", "sampled", "greedy"))
                cost = f"{result['environment_steps']:,} environment steps, {result['wall_seconds']:.0f} s"
                console.print(f"{name}, seed {seed}: return {returns}; {cost}", highlight=False)
