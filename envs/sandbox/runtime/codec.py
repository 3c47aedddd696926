"""Serialization of plain data for messages of sandboxed processes: JSON arrays with type tags, without pickle.

    None, bool, printable ASCII, float, int below 2**53 in size    unchanged
    list, tuple, set or frozenset, dict    ["l", …], ["t", …], ["s", …], ["d", key, value, key, value, …]
    other str, int, nan or inf, complex    ["u", hex of UTF-8], ["i", hex], ["f", text], ["c", real, imag]
    bytes, range                           ["b", hex], ["r", start, stop, step]
    Decimal, Fraction                      ["e", "Decimal", text], ["e", "Fraction", numerator, denominator]
    datetime, date, time                   ["e", name, ISO 8601]
    timedelta                              ["e", "timedelta", days, seconds, microseconds]
    deque, Counter, OrderedDict            ["e", "deque", maxlen or null, …], ["e", name, key, value, …]
    a builtin type, such as int            ["e", name]
    other objects                          the result of `remote`, such as a handle

JSON objects are not used, because the host would have to build a hash table of keys that untrusted code chose.
Instances of subclasses are converted to their builtin type, so that their methods do not influence comparisons.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

MAX_DEPTH = 60
_MAX_PLAIN_INTEGER = 1 << 53
Wire = Any  # serialized value after JSON parsing
Remote = Callable[[Any], str]
Resolve = Callable[[list[Any]], Any]

AS_BUILTIN: dict[type[Any], Callable[[Any], Any]] = {
    int: int.__int__,  # not int(), which calls methods of the subclass
    float: float.__float__,
    str: str.__str__,
    **{kind: kind for kind in (bytes, bytearray, list, tuple, dict, set, frozenset, complex)},
}
EXTENDED = {
    "Decimal": "decimal",
    "Fraction": "fractions",
    **dict.fromkeys(("datetime", "date", "time", "timedelta"), "datetime"),
    **dict.fromkeys(("deque", "Counter", "OrderedDict"), "collections"),
}
"""Types of the standard library that can be serialized: name of the module by name of the type."""
TYPES = {kind.__name__: kind for kind in (int, str, float, bool, bytes, list, tuple, dict, set, frozenset, complex)}


def is_extended(value: Any) -> bool:
    """Return True for instances of the types in `EXTENDED`, and for builtin types themselves, such as `int`."""
    kind = type(value)
    if kind is type:
        return TYPES.get(value.__name__) is value
    return EXTENDED.get(kind.__name__) == kind.__module__


def refuse(value: Any) -> str:
    """Raise TypeError, because the value is not plain data. Default of `remote` in `encode`."""
    raise TypeError(f"a {type(value).__name__} is not plain data")


def refuse_handle(wire: list[Any]) -> Any:
    """Raise TypeError, because handles of objects are not expected. Default of `resolve` in `decode`."""
    raise TypeError("an object of the code under test is not plain data" if wire[0] == "h" else "an unknown tag")


def string(value: str) -> str:
    """Encode a string as JSON, without the module `json`, whose import would make every fork slower."""
    if value.isascii() and value.isprintable() and '"' not in value and "\\" not in value:
        return f'"{value}"'
    return f'["u","{value.encode("utf-8", "surrogatepass").hex()}"]'


def encode(value: Any, remote: Remote = refuse, depth: int = 0) -> str:
    """Encode a value as ASCII JSON. Raise TypeError if `remote` refuses an object, ValueError above 60 levels."""
    kind = type(value)
    if kind is int:
        return repr(value) if -_MAX_PLAIN_INTEGER < value < _MAX_PLAIN_INTEGER else f'["i","{value:x}"]'
    if kind is str:
        return string(value)
    if value is None:
        return "null"
    if kind is bool:
        return "true" if value else "false"
    if kind is float:
        return repr(value) if value - value == 0 else f'["f","{value!r}"]'
    if depth == MAX_DEPTH:
        raise ValueError(f"nested more than {MAX_DEPTH} deep")
    depth += 1
    if kind is list or kind is tuple or kind is set or kind is frozenset:
        tag = '["l"' if kind is list else '["t"' if kind is tuple else '["s"'
        return ",".join([tag, *[encode(item, remote, depth) for item in value]]) + "]"
    if kind is dict:
        return ",".join(['["d"', *[encode(part, remote, depth) for item in value.items() for part in item]]) + "]"
    if kind is bytes or kind is bytearray:
        return f'["b","{value.hex()}"]'
    if kind is complex:
        return f'["c",{encode(value.real)},{encode(value.imag)}]'
    if kind is range:
        return f'["r",{encode(value.start)},{encode(value.stop)},{encode(value.step)}]'
    if is_extended(value):
        parts = [encode(part, remote, depth) for part in _parts(value)]
        return ",".join([f'["e","{value.__name__ if kind is type else kind.__name__}"', *parts]) + "]"
    for builtin, convert in AS_BUILTIN.items():
        if isinstance(value, builtin):
            return encode(convert(value), remote, depth)
    if kind.__module__ == "numpy":  # arrays as nested lists, scalars as numbers
        return encode(value.tolist(), remote, depth)
    return remote(value)


def _parts(value: Any) -> list[Any]:
    """Return the values from which `extended` rebuilds a value of the standard library, such as a Decimal."""
    name = type(value).__name__
    if name == "type":
        return []
    if name == "Decimal":
        return [str(value)]
    if name == "Fraction":
        return [value.numerator, value.denominator]
    if name == "timedelta":
        return [value.days, value.seconds, value.microseconds]
    if name == "deque":
        return [value.maxlen, *value]
    if name in ("Counter", "OrderedDict"):
        return [part for item in value.items() for part in item]
    return [value.isoformat()]


def extended(name: str, parts: list[Any]) -> Any:
    """Build a value of the standard library from its type name and parts. Invalid parts raise various exceptions."""
    if name in TYPES and not parts:
        return TYPES[name]
    if name not in EXTENDED:
        raise ValueError(f"unknown type {name!r}")
    kind = getattr(importlib.import_module(EXTENDED[name]), name)
    if name == "deque":
        return kind(parts[1:], parts[0])
    if name in ("Counter", "OrderedDict"):
        return kind(dict(zip(parts[::2], parts[1::2], strict=True)))
    return kind.fromisoformat(*parts) if name in ("datetime", "date", "time") else kind(*parts)


def decode(wire: Wire, resolve: Resolve = refuse_handle, *, is_key: bool = False) -> Any:
    """Decode a serialized value. Only for use inside a jail, because hash collisions can make decoding slow.

    `resolve` decodes handles and raises TypeError for unknown tags. With `is_key`, sets become frozensets.
    """
    if type(wire) is not list:
        return wire
    tag = wire[0]
    if tag == "l":
        return [decode(item, resolve) for item in wire[1:]]
    if tag == "t":
        return tuple([decode(item, resolve, is_key=is_key) for item in wire[1:]])
    if tag == "d":
        keys = [decode(item, resolve, is_key=True) for item in wire[1::2]]
        return dict(zip(keys, [decode(item, resolve) for item in wire[2::2]], strict=True))
    if tag == "s":
        return (frozenset if is_key else set)([decode(item, resolve, is_key=True) for item in wire[1:]])
    if tag == "u":
        return bytes.fromhex(wire[1]).decode("utf-8", "surrogatepass")
    if tag == "i":
        return int(wire[1], 16)
    if tag == "f":
        return float(wire[1])
    if tag == "b":
        return bytes.fromhex(wire[1])
    if tag == "c":
        return complex(decode(wire[1]), decode(wire[2]))
    if tag == "r":
        return range(*[decode(part) for part in wire[1:]])
    if tag == "e":
        is_table = wire[1] in ("Counter", "OrderedDict")
        parts = [decode(part, resolve, is_key=is_table and not place % 2) for place, part in enumerate(wire[2:])]
        return extended(wire[1], parts)
    return resolve(wire)
