"""Measure the noise of advantages by critic for frozen teams, and what critics explain of recorded runs."""

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
    """Measure how well each critic's advantages tell what turns of frozen teams truly changed, and their noise."""

    action: Positional[Literal["run", "table", "attained", "refit"]] = "run"
    """Step to take: measure all cells that have no file yet, then write the table and the figure (run), write these
    from the files alone (table), write what the critics of trained runs explained while they learned (attained), or
    what a bag of words of other settings would have explained of the same episodes, without training (refit)."""
    runs: tuple[Path, ...] = ()
    """Run directories of one method on one task, with `attained` and `refit`; for `refit` of any method."""
    critic_l2: tuple[NotNegative, ...] = (50.0,)
    """L2 penalties of the bag of words, with `refit`."""
    critic_replay: tuple[Count, ...] = (64,)
    """Replay lengths of the bag of words in updates, with `refit`."""
    critic_input: tuple[Literal["joint", "own"], ...] = ("joint",)
    """Inputs of the bag of words, with `refit`: the joint history, or each agent's own."""
    trend: tuple[Literal["on", "off"], ...] = ("on",)
    """Trend of the bag of words over the updates of its replay, with `refit`."""
    trust: bool = False
    """Allow settings of the runs that import code, or name files and servers outside of their folders."""
    policies: tuple[str, ...] = ("tiny=tiny",)
    """Frozen teams as NAME=MODEL, MODEL as in `collm train --model`: one folder or hub name, or one per agent."""
    env: str = "collm/MiniShift-v0"
    """Environment, whose infos tell the team's progress as `metric/quality`."""
    horizons: tuple[Count, ...] = (8,)
    """Numbers of turns per episode."""
    agents: tuple[Count, ...] = (2,)
    """Numbers of agents."""
    feedback: tuple[str, ...] = ("cross",)
    """Kinds of feedback."""
    rewards: tuple[str, ...] = ("sparse",)
    """Kinds of reward."""
    traces: tuple[Share, ...] = (0.0, 0.5, 0.9, 1.0)
    """GAE lambdas."""
    critic: str = "small"
    """Critic of own, joint and privileged histories: a name as in `critic_model_name_or_path`."""
    max_new_tokens: Count = 8
    """Longest completion in tokens."""
    known: Count = 512
    """Episodes that critics learn from, until what they explain of others stops rising."""
    groups: Count = 16
    """Tasks that are measured on; a number above 1."""
    group_size: Count = 8
    """Episodes per task; a number above 1."""
    branches: Count = 2
    """Branches per turn of an episode, by which its true effect is known; an even number. Few branches of many episodes
    tell more than many branches of few."""
    gradient_groups: Count | None = None
    """Tasks whose episodes' policy gradients are measured, the costliest part; a number above 1. None: all."""
    seed: Seed = 0
    """Seed of the critics' first weights and of their batches."""
    out: Path = Path("runs/variance")
    """Folder of the results: a JSON file per cell, whose measurement is not repeated, a table and a figure."""


def run(args: Sequence[str]) -> None:
    """Take the step that the arguments name."""
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
        f"table: {arguments.out / 'README.md'}, figures beside it: samples.png, correlation.png", markup=False
    )


def _write_records(arguments: VarianceArguments) -> None:
    """Write the table of what critics explained, or would have explained, of recorded episodes."""
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
    """All cells that the arguments span.

    Raises:
        UserError: if a policy has no name, or a number is too small to compare anything.
    """
    from bench import Cell

    if arguments.groups < 2 or arguments.group_size < 2:
        raise UserError(
            f"--groups {arguments.groups} --group-size {arguments.group_size} compares nothing; give 2 of each or more"
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
