"""Checks of an environment's settings."""

from __future__ import annotations

from typing import Any


def refuse_other(name: str, value: Any, choices: tuple[Any, ...]) -> None:
    """Raise if a setting is none of its choices."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}")
