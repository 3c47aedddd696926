"""`collm check ID`: the contract of environments, checked on one of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rich.console import Console
from tyro.conf import Positional

from ..._terminal import shown
from ...envs.checks.checker import CheckFailure, check_env
from ...envs.registration.registry import spec
from ..arguments import keyword_arguments, parsed
from ..errors import UserError, refusals


@dataclass(frozen=True, kw_only=True)
class CheckArguments:
    """Check an environment against the whole contract."""

    env: Positional[str]
    """Registered id; `collm envs` lists them."""
    env_kwargs: tuple[str, ...] = ()
    """Arguments of the environment as key=value; values may be JSON."""


def run(args: Sequence[str]) -> None:
    arguments = parsed(CheckArguments, "check", args)
    with refusals():
        found = spec(arguments.env)
        given = keyword_arguments(arguments.env_kwargs)
        found.make(**given).close()
        chosen = replace(found, kwargs={**found.kwargs, **given})
    try:
        passed = check_env(chosen)
    except CheckFailure as failure:
        raise UserError(str(failure)) from failure
    console = Console()
    for rule in passed:
        console.print(f"[green]✓[/] {rule}")
    console.print(f"{shown(arguments.env)} keeps all {len(passed)} rules.", markup=False)
