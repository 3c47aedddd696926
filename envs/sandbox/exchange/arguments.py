"""Values on their way into the jail: plain data of exact builtin types."""

from __future__ import annotations

import json
from typing import Any, Final

from ..runtime.codec import AS_BUILTIN, encode, is_extended

_SCALARS: Final = (int, str, float, bool, type(None), bytes, complex)
_COLLECTIONS: Final = (list, tuple, set, frozenset)


class NeedsEncoding(TypeError):
    """A value that a sandbox takes, but not as it is."""


def plain(value: Any) -> Any:
    """The value itself, or a copy if a part of it is a subclass of a builtin type.

    Raises:
        NeedsEncoding: if a part of it is of an extended type, such as a deque.
        TypeError: if a part of it is of none of the types that travel.
    """
    kind = type(value)
    if kind in _SCALARS:
        return value
    if kind in _COLLECTIONS:
        return kind([plain(item) for item in value])
    if kind is dict:
        return {plain(key): plain(item) for key, item in value.items()}
    if is_extended(value):
        raise NeedsEncoding(kind.__name__)
    for builtin, convert in AS_BUILTIN.items():
        if isinstance(value, builtin):
            return plain(convert(value))
    raise TypeError(
        f"a {kind.__name__} cannot be an argument in a sandbox: only numbers, strings, bytes, None, lists, tuples, "
        "sets, dicts, deques, counters, dates and times of them; convert it, or build it in the code"
    )


def encoded(value: Any) -> Any:
    """The value in wire form.

    Raises:
        TypeError: if a part of it is of none of the types that travel.
    """
    return json.loads(encode(value))
