"""Command-line arguments that several commands share."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, TypeVar

from .._errors import UserError

Arguments = TypeVar("Arguments")


def parsed(kind: type[Arguments], command: str, args: Sequence[str]) -> Arguments:
    """Read a dataclass from the command line; nested dataclasses add their fields without a prefix."""
    import tyro  # here, as what takes no arguments need not wait for it

    made: Arguments = tyro.cli(kind, prog=f"collm {command}", args=list(args), config=(tyro.conf.OmitArgPrefixes,))
    return made


def keyword_arguments(pairs: Sequence[str], option: str = "--env-kwargs") -> dict[str, Any]:
    """Arguments from `key=value` pairs; a value that is JSON (a number, true, null, a list, an object) is read as such,
    any other as text.

    Raises:
        UserError: if a pair has no "=".
    """
    found: dict[str, Any] = {}
    for pair in pairs:
        key, separator, value = pair.partition("=")
        if not separator or not key:
            raise UserError(f"{option} takes key=value pairs, got {pair!r}; write for example key=4")
        try:
            found[key] = json.loads(value)
        except json.JSONDecodeError:
            found[key] = value
    return found
