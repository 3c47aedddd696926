"""Measure the noise of advantages of frozen teams by critic, and the explained variance of critics in recorded runs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import torch
import tyro
from tyro.conf import Positional

from collm._ownership import owned, refuse_foreign_files, write_text
from collm._ranges import Checked, Count, NotNegative, Seed, Share
from collm._terminal import terminal
from collm.benchmarks.errors import UserError, check_folder, refusals

FILES = PAGE, CORRELATION, SAMPLES = "README.md", "correlation.png", "samples.png"

if TYPE_CHECKING:
    from bench import Cell


@dataclass(frozen=True, kw_only=True)
class VarianceArguments(Checked):
    """Measure the noise of each critic's advantages, and the correlation with the true effects of a team's turns."""

    action: Positional[Literal["run", "table", "attained", "refit"]] = "run"
    """Command. run: measure all cells without a result file, then write the table and figures. table: write table and
    figures of existing result files. attained: write the explained variance of the critics of recorded runs. refit:
    write the explained variance that a bag-of-words critic with other settings would have had in recorded runs."""
    runs: tuple[Path, ...] = ()
    """Run folders of one method on one task, for `attained` and `refit`. `refit` accepts methods without a critic."""
    critic_l2: tuple[NotNegative, ...] = (50.0,)
    """L2 penalties of the bag-of-words critic, for `refit`."""
    critic_replay: tuple[Count, ...] = (64,)
    """Numbers of updates in the replay buffer of the bag-of-words critic, for `refit`."""
    critic_input: tuple[Literal["joint", "own"], ...] = ("joint",)
    """Inputs of the bag-of-words critic, for `refit`: the joint history, or each agent's own history."""
    trend: tuple[Literal["on", "off"], ...] = ("on",)
    """Linear trend of the bag-of-words critic over the updates of the replay buffer, for `refit`."""
    trust: bool = False
    """Allow settings of the runs that import code, or name files and servers outside of their folders."""
    policies: tuple[str, ...] = ("tiny=tiny",)
    """Frozen teams as NAME=MODEL. MODEL is a folder or hub name, or one per agent, as in `collm train --model`."""
    env: str = "collm/MiniShift-v0"
    """Environment with the team's progress as `metric/quality` in its info dicts."""
    horizons: tuple[Count, ...] = (8,)
    """Numbers of turns per episode."""
    agents: tuple[Count, ...] = (2,)
    """Numbers of agents."""
    feedback: tuple[str, ...] = ("cross",)
    """Values of the environment's argument `feedback`."""
    rewards: tuple[str, ...] = ("sparse",)
    """Values of the environment's argument `reward`."""
    traces: tuple[Share, ...] = (0.0, 0.5, 0.9, 1.0)
    """Values of GAE's lambda."""
    critic: str = "small"
    """Critic of own, joint and privileged histories: a name as in `critic_model_name_or_path`."""
    max_new_tokens: Count = 8
    """Maximum number of tokens per completion."""
    known: Count = 512
    """Number of episodes from which critics learn, until the explained variance of held-out episodes stops rising."""
    groups: Count = 16
    """Number of measured tasks; at least 2."""
    group_size: Count = 8
    """Number of episodes per task; at least 2."""
    branches: Count = 2
    """Number of branches per turn of an episode, to estimate the turn's true effect; even. Few branches of many
    episodes give better estimates than many branches of few episodes."""
    gradient_groups: Count | None = None
    """Number of tasks whose policy gradients are measured, which takes most of the time; at least 2. None: all."""
    seed: Seed = 0
    """Seed of the critics' initial weights and mini-batches."""
    out: Path = Path("runs/variance")
    """Folder of the results: a JSON file per cell, a table and figures. Cells with a file are not measured again."""


def run(args: Sequence[str]) -> None:
    """Run the command that the arguments name."""
    arguments = tyro.cli(VarianceArguments, args=list(args), prog="research/variance/run.py")
    if arguments.action in ("attained", "refit"):
        return _write_records(arguments)

    from bench import Size, write_cell  # here: help needs no models
    from tables import draw, draw_samples, page, read_cells

    console = terminal()
    torch.set_num_threads(1)
    with refusals():
        check_folder(arguments.out, "--out")
        refuse_foreign_files(arguments.out, FILES)
        found = cells(arguments)
        for cell in found if arguments.action == "run" else ():
            size = Size(
                num_known=arguments.known,
                num_groups=arguments.groups,
                group_size=arguments.group_size,
                num_branches=arguments.branches,
                num_gradient_groups=arguments.gradient_groups,
                traces=arguments.traces,
                seed=arguments.seed,
            )
            console.print(f"{write_cell(cell, size, arguments.out)}", highlight=False, markup=False)
        results = read_cells(arguments.out)
    text = page(results)
    write_text(arguments.out, PAGE, text)
    for name, drawn in ((CORRELATION, draw), (SAMPLES, draw_samples)):
        with owned(arguments.out, name) as new:
            drawn(results, new)
    console.print(
        f"table: {arguments.out / 'README.md'}, figures in the same folder: samples.png, correlation.png", markup=False
    )


def _write_records(arguments: VarianceArguments) -> None:
    """Write the table of the explained variance of critics in recorded runs, for `attained` and `refit`."""
    from attained import attained, attained_page
    from recorded import recorded
    from refit import Setting, refit_page, refitted

    console = terminal()
    torch.set_num_threads(1)
    with refusals():
        if not arguments.runs:
            raise UserError(f"{arguments.action} needs run directories; give --runs RUN RUN …")
        check_folder(arguments.out, "--out")
        refuse_foreign_files(arguments.out, [PAGE])
        if arguments.action == "attained":
            text = attained_page([attained(each, trust=arguments.trust) for each in arguments.runs])
        else:
            records = [recorded(each, trust=arguments.trust) for each in arguments.runs]
            found = {}
            for source, replay, penalty, trend in product(
                arguments.critic_input, arguments.critic_replay, arguments.critic_l2, arguments.trend
            ):
                setting = Setting(penalty, replay, source, trend == "on")
                found[setting] = [refitted(record, setting) for record in records]
                console.print(f"{setting}", highlight=False, markup=False)
            text = refit_page(found)
    write_text(arguments.out, PAGE, text)
    console.print(f"table: {arguments.out / 'README.md'}", markup=False)


def cells(arguments: VarianceArguments) -> list[Cell]:
    """Return the cells: all combinations of the arguments' values.

    Raises:
        UserError: if a policy has no name, or a number of tasks, episodes or branches is too small.
    """
    from bench import Cell

    if arguments.groups < 2 or arguments.group_size < 2:
        raise UserError(
            f"--groups {arguments.groups} --group-size {arguments.group_size} is too small; both must be at least 2"
        )
    if arguments.gradient_groups is not None and not 2 <= arguments.gradient_groups <= arguments.groups:
        raise UserError(
            f"--gradient-groups {arguments.gradient_groups} is not between 2 and --groups {arguments.groups}"
        )
    if arguments.branches % 2:
        raise UserError(f"--branches {arguments.branches} cannot be halved; give an even number")
    found = []
    for policy in arguments.policies:
        name, equals, model = policy.partition("=")
        if not (name and equals and model):
            raise UserError(f"--policies are NAME=MODEL, such as start=tiny; got {policy!r}")
        for horizon, team, feedback, reward in product(
            arguments.horizons, arguments.agents, arguments.feedback, arguments.rewards
        ):
            kwargs = {"max_turns": horizon, "num_agents": team, "feedback": feedback, "reward": reward}
            found.append(Cell(name, model, arguments.env, kwargs, arguments.max_new_tokens, arguments.critic))
    return found


if __name__ == "__main__":
    try:
        with refusals():
            run(sys.argv[1:])
    except UserError as error:
        sys.exit(f"error: {error}")
