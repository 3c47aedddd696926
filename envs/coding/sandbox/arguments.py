"""Values on their way into the jail: plain data of exact builtin types."""

from __future__ import annotations

from typing import Any, Final

from .runtime.codec import AS_BUILTIN

_SCALARS: Final = (int, str, float, bool, type(None), bytes, complex)
_COLLECTIONS: Final = (list, tuple, set, frozenset)


def plain(value: Any) -> Any:
    """The value itself, or a copy if a part of it is a subclass of a builtin type.

    Raises:
        TypeError: if a part of it is neither.
    """
    kind = type(value)
    if kind in _SCALARS:
        return value
    if kind in _COLLECTIONS:
        return kind([plain(item) for item in value])
    if kind is dict:
        return {plain(key): plain(item) for key, item in value.items()}
    for builtin, convert in AS_BUILTIN.items():
        if isinstance(value, builtin):
            return plain(convert(value))
    raise TypeError(
        f"a {kind.__name__} cannot be an argument in a sandbox: only numbers, strings, bytes, None, and lists, tuples, "
        "sets and dicts of them; convert it, or build it in the code"
    )
