"""Settings of an environment: checks, and a second set of defaults for comparing with published results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar

Variant = Literal["ours", "published"]
"""Whose defaults: this package's, or those of the published task."""

S = TypeVar("S")
P = ParamSpec("P")


def with_published(
    defaults: Mapping[str, Any],
) -> Callable[[Callable[Concatenate[S, P], None]], Callable[Concatenate[S, P], None]]:
    """Let a constructor's argument `variant` choose between its own defaults and the published ones.

    An argument that is given counts before either. The constructor takes `variant` too, and sees which one it is.

    Args:
        defaults: the published values of those arguments whose own defaults differ.
    """

    def decorated(construct: Callable[Concatenate[S, P], None]) -> Callable[Concatenate[S, P], None]:
        @wraps(construct)
        def chosen(self: S, *args: P.args, **kwargs: P.kwargs) -> None:
            variant = kwargs.get("variant", "ours")
            if variant not in ("ours", "published"):
                raise ValueError(f"variant must be 'ours' or 'published', got {variant!r}")
            added: dict[str, Any] = {**defaults, **kwargs} if variant == "published" else dict(kwargs)
            construct(self, *args, **added)  # type: ignore[arg-type]

        return chosen

    return decorated


def refuse_other(name: str, value: Any, choices: tuple[Any, ...]) -> None:
    """Raise if a setting is none of its choices."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}")
