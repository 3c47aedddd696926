"""Files of settings for `collm train --config`: TOML as a person writes it, or the config.json of a run."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .._errors import UserError
from .._json import read_json
from .._removed import without_removed
from ..algorithms.config import OLDER_VALUES

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PARTS = ("config", "model", "network")
"""Tables of a run's config.json, whose settings may also stand without a table."""
CONFIG = "--config"


@dataclass(frozen=True)
class Given:
    """What a file says."""

    path: Path | None = None
    """None: no file is named."""
    algorithm: str | None = None
    env_kwargs: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    """All other settings, by name."""


def given_settings(args: list[str]) -> Given:
    """The file of settings that a command line names.

    Raises:
        UserError: if there is no such file, or if it is no table of settings.
    """
    path = _named(args)
    if path is None:
        return Given()
    if not path.is_file():
        raise UserError(f"{CONFIG} {path}: there is no such file; give a TOML file, or a run's config.json")
    found = dict(_read(path))
    algorithm, env_kwargs = found.pop("algorithm", None), found.pop("env_kwargs", {})
    if not isinstance(env_kwargs, Mapping):
        raise UserError(f"{path}: env_kwargs must be a table of names and values, got {env_kwargs!r}")
    if algorithm is not None and not isinstance(algorithm, str):
        raise UserError(f"{path}: algorithm must be text, got {algorithm!r}")
    settings: dict[str, Any] = {}
    if path.suffix == ".json" and isinstance(found.get("config"), Mapping):  # a run's, which may be an old one
        found["config"] = {**OLDER_VALUES, **found["config"]}
        found |= {name: without_removed(found[name]) for name in PARTS if isinstance(found.get(name), Mapping)}
    for name, value in found.items():
        inner = value if name in PARTS and isinstance(value, Mapping) else {name: value}
        if twice := sorted(set(settings) & set(inner)):
            raise UserError(f"{path} gives {twice[0]!r} twice; give it once")
        settings |= inner
    plain = {name: tuple(value) if isinstance(value, list) else value for name, value in settings.items()}
    return Given(path, algorithm, env_kwargs, plain)


def _named(args: list[str]) -> Path | None:
    """The last file that the words name; a missing name is the parser's to tell."""
    found = None
    for word, following in zip(args, [*args[1:], None], strict=True):
        if word == CONFIG and following is not None:
            found = Path(following)
        elif word.startswith(f"{CONFIG}="):
            found = Path(word.partition("=")[2])
    return found


def _read(path: Path) -> Mapping[str, Any]:
    if path.suffix == ".json":
        return read_json(path)
    try:
        found: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is no TOML: {error}") from error
    return found
