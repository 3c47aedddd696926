"""Settings of an environment: checks, and a second set of defaults for comparing with published results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, Literal, TypeVar, cast, get_args

Variant = Literal["ours", "published"]
"""Whose defaults: this package's, or those of the published task."""

Constructor = TypeVar("Constructor", bound=Callable[..., None])


def with_published(defaults: Mapping[str, Any]) -> Callable[[Constructor], Constructor]:
    """Let a constructor's argument `variant` choose between its own defaults and the published ones.

    An argument that is given counts before either. The constructor takes `variant` too, and sees which one it is.

    Args:
        defaults: the published values of those arguments whose own defaults differ.
    """

    def decorated(construct: Constructor) -> Constructor:
        @wraps(construct)
        def chosen(*args: Any, **kwargs: Any) -> None:
            variant = kwargs.get("variant", "ours")
            refuse_other("variant", variant, get_args(Variant))
            construct(*args, **({**defaults, **kwargs} if variant == "published" else kwargs))

        return cast(Constructor, chosen)

    return decorated


def refuse_other(name: str, value: Any, choices: tuple[Any, ...]) -> None:
    """Raise if a setting is none of its choices."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}")
