"""Reading and writing of settings in TOML. The text "None" stands for None, because TOML has no null."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ._errors import UserError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

NONE = "None"


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file. Raises `UserError` if the content is not TOML."""
    try:
        found: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not TOML: {error}") from error
    return dict(_mapped(found, lambda value: None if value == NONE else value))


def toml(values: Mapping[str, Any]) -> str:
    """Return a dict as TOML. Values of other types are written as text."""
    import tomli_w  # late import: environments alone do not need it

    return tomli_w.dumps(_mapped(values, lambda value: value if isinstance(value, str | int | float) else str(value)))


def _mapped(values: Any, function: Callable[[Any], Any]) -> Any:
    """Apply a function to all values in nested dicts and lists."""
    if isinstance(values, Mapping):
        return {name: _mapped(value, function) for name, value in values.items()}
    if isinstance(values, list | tuple):
        return [_mapped(value, function) for value in values]
    return function(values)
