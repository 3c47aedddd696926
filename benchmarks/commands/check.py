"""`collm check ID`: the contract of environments, checked on one of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.markup import escape
from rich.table import Table
from tyro.conf import Positional

from ..._ranges import Checked, Count
from ..._terminal import shown, terminal
from ...envs.checks.checker import CheckFailure, check_env
from ...envs.checks.exploits import NUM_EPISODES, Standing, exploit_standings, refuse_exploits
from ...envs.registration.registry import spec
from ..arguments import keyword_arguments, parsed
from ..errors import UserError, refusals


@dataclass(frozen=True, kw_only=True)
class CheckArguments(Checked):
    """Check an environment against the whole contract."""

    env: Positional[str]
    """Environment: a registered id (`collm envs` lists them) or "module:Class"."""
    env_kwargs: tuple[str, ...] = ()
    """Arguments of the environment as key=value; values may be JSON."""
    exploits: bool = False
    """Play degenerate teams in place of the check of the contract: how far each comes from an empty team (0 %) to the
    reference (100 %)."""
    episodes: Count | None = None
    """Episodes per degenerate team, from seed 0 up, with `--exploits`. None: 8."""


def run(args: Sequence[str]) -> None:
    arguments = parsed(CheckArguments, "check", args)
    if arguments.episodes is not None and not arguments.exploits:
        raise UserError(f"--episodes {arguments.episodes} is for degenerate teams; add --exploits, or leave it out")
    with refusals():
        chosen = spec(arguments.env).given(**keyword_arguments(arguments.env_kwargs))
        env = chosen.make()
    console = terminal()
    try:
        if arguments.exploits:
            with refusals():
                standings = exploit_standings(env, arguments.episodes or NUM_EPISODES)
            console.print(exploit_table(standings))
            refuse_exploits(standings)
            return
        passed = check_env(chosen)
    except CheckFailure as failure:
        raise UserError(str(failure)) from failure
    finally:
        env.close()
    for rule in passed:
        console.print(f"[green]✓[/] {rule}")
    console.print(f"{shown(arguments.env)} keeps all {len(passed)} rules.", markup=False)


def exploit_table(standings: Sequence[Standing]) -> Table:
    """How far each player comes, the best first; those that come too far are red."""
    table = Table("player", box=None, pad_edge=False, header_style="bold")
    for name in ("mean return", "share of the way", "allowed"):
        table.add_column(name, justify="right")
    table.add_column("why")
    for each in sorted(standings, key=lambda standing: -standing.share):
        style = "red" if each.is_too_good else ""
        numbers = (f"{each.mean_return:.3f}", f"{each.share:.0%}", f"{each.limit:.0%}")
        table.add_row(escape(shown(each.player)), *numbers, escape(shown(each.reason)), style=style)
    return table
