"""Reading and writing of settings in TOML. The text "None" stands for None, because TOML has no null."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
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
        found: dict[str, Any] = _with_none(tomllib.loads(path.read_text(encoding="utf-8")))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not TOML: {error}") from error
    return found


def toml_lines(values: Mapping[str, Any]) -> list[str]:
    """Return a line `name = value` for each item."""
    return [f"{_key(name)} = {_value(value)}" for name, value in values.items()]


def _with_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _with_none(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_with_none(each) for each in value]
    return None if value == NONE else value


def _key(name: str) -> str:
    is_bare = name.isascii() and name.replace("_", "").replace("-", "").isalnum()
    return name if is_bare else _value(name)


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(toml_lines(value)) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_value, value)) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    # JSON strings are TOML strings, except for the delete character.
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
