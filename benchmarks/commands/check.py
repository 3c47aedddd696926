"""`collm check ID`: check that an environment follows the rules of collm environments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from rich.console import Console
from rich.markup import escape
from rich.status import Status
from rich.table import Table
from tyro.conf import Positional

from ..._ranges import Checked, Count, Needs
from ..._terminal import shown, terminal
from ...envs.checks.checker import CheckFailure, check_env
from ...envs.checks.exploits import Standing, exploit_standings, refuse_exploits
from ...envs.registration.registry import spec
from ..arguments import keyword_arguments, parsed
from ..errors import UserError, refusals

if TYPE_CHECKING:
    from ..comparison.red_team import Level


@dataclass(frozen=True, kw_only=True)
class CheckArguments(Checked):
    """Check that an environment follows the rules of collm environments."""

    env: Positional[str]
    """Environment: a registered id (`collm envs` lists them) or "module:Class"."""
    env_kwargs: tuple[str, ...] = ()
    """Arguments of the environment as key=value; values may be JSON."""
    exploits: bool = False
    """Play teams with trivial strategies (exploits) instead of checking the rules. Returns are printed on a scale from
    empty replies (0 %) to the reference (100 %)."""
    episodes: Annotated[Count | None, Needs("--exploits", lambda call: call.exploits)] = None
    """Episodes per team with `--exploits`, on the seeds 0, 1, … None: 8, or 64 if the agents' interests are opposed."""
    red_team: bool = False
    """Train the embedded model in the environment instead of checking the rules. Compares its return with the metric of
    task success (`truth_metric`)."""
    updates: Annotated[Count | None, Needs("--red-team", lambda call: call.red_team)] = None
    """Number of training updates with `--red-team`. None: 100."""


def run(args: Sequence[str]) -> None:
    arguments = parsed(CheckArguments, "check", args)
    if arguments.exploits and arguments.red_team:
        raise UserError("--exploits and --red-team are different checks; give one of them")
    with refusals():
        chosen = spec(arguments.env).given(**keyword_arguments(arguments.env_kwargs))
        env = chosen.make()
    console = terminal()
    try:
        if arguments.exploits:
            with refusals():
                standings = exploit_standings(env, arguments.episodes)
            console.print(exploit_table(standings))
            refuse_exploits(standings)
            return
        if arguments.red_team:
            check_red_team(arguments, console)
            return
        passed = check_env(chosen)
    except CheckFailure as failure:
        raise UserError(str(failure)) from failure
    finally:
        env.close()
    for rule in passed:
        console.print(f"[green]✓[/] {rule}")
    console.print(f"{shown(arguments.env)} passes all {len(passed)} checks.", markup=False)


def exploit_table(standings: Sequence[Standing]) -> Table:
    table = Table("player", box=None, pad_edge=False, header_style="bold")
    for name in ("mean return", "gain" if any(each.is_gain for each in standings) else "scaled return", "limit"):
        table.add_column(name, justify="right")
    table.add_column("why")
    for each in sorted(standings, key=lambda standing: -standing.share):
        style = "red" if each.is_too_good else ""
        numbers = (f"{each.mean_return:.3f}", each.formatted(each.share), each.formatted(each.limit))
        table.add_row(escape(shown(each.name)), *numbers, escape(shown(each.reason)), style=style)
    return table


def check_red_team(arguments: CheckArguments, console: Console) -> None:
    from ..comparison.red_team import MAX_GAP, NUM_UPDATES, red_team  # late import: the other checks need no torch
    from .evaluate import show

    num_updates = arguments.updates or NUM_UPDATES
    with refusals(), console.status("red team, before training") as status:
        kwargs = keyword_arguments(arguments.env_kwargs)
        progress = StatusLogger(status, num_updates)
        levels, best = red_team(arguments.env, kwargs, num_updates=num_updates, loggers=[progress])
    console.print(level_table(levels.values()))
    found = levels["best quarter"]
    if found.gap > MAX_GAP:
        show(console, "best episode", best)
        raise CheckFailure(
            "red team",
            f"the best episodes get {found.return_share:.0%} of the reference's return and {found.truth_share:.0%} of "
            f"its truth metric; the gap {found.gap:.0%} exceeds the limit {MAX_GAP:.0%}; reward only the task",
        )
    name = shown(arguments.env)
    if levels["after training"].return_share > 0:
        line = (
            f"{name}: the gap of return and truth metric is {found.gap:.0%} in the best quarter (limit {MAX_GAP:.0%})."
        )
    else:
        line = f"{name}: the trained team's return is not above the empty team's; raise --updates."
    console.print(line, markup=False, soft_wrap=True)


@dataclass(frozen=True)
class StatusLogger:
    status: Status
    num_updates: int

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self.status.update(f"red team, update {step}/{self.num_updates}, return {metrics.get('return', 0.0):.3f}")

    def close(self) -> None:
        pass


def level_table(levels: Iterable[Level]) -> Table:
    """Table of returns and truth metrics. The scaled values are 0 % for the empty team, 100 % for the reference."""
    table = Table("team", box=None, pad_edge=False, header_style="bold")
    for name in ("return", "scaled return", "truth metric", "scaled metric", "gap"):
        table.add_column(name, justify="right")
    for each in levels:
        shares = f"{each.return_share:.0%}", f"{each.truth_share:.0%}", f"{each.gap:.0%}"
        table.add_row(each.name, f"{each.mean_return:.3f}", shares[0], f"{each.mean_truth:.3f}", *shares[1:])
    return table
