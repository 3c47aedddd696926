"""Reading and comparing what the code under test sent, on the trusted side.

The bytes are hostile. Nothing here builds a hash table of keys that they chose (ints that collide would make it take
quadratic time), parses a long decimal, calls a method of theirs, or goes deeper than a fixed depth.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NoReturn

from .runtime.codec import MAX_DEPTH, Wire

MAX_NODES = 1_000_000
_MAX_EQUAL_HASHES = 64
_MAX_KEY_NODES = 10_000
_MAX_DIGITS = 17
_MAX_FLOAT_LENGTH = 32
_MAX_HEXADECIMAL = 3500  # just below the 4300 decimal digits at which str() raises, wherever a value is then logged
_SEQUENCE_TAGS = ("l", "t", "s", "d")
_FLOATS = {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}


class MalformedValue(ValueError):
    """Bytes that are no value: whoever sent them is not our end of the protocol."""


def _refuse_object(pairs: Sequence[tuple[str, Any]]) -> NoReturn:
    raise MalformedValue("an object where only arrays may be")


def _refuse_constant(text: str) -> NoReturn:
    raise MalformedValue(f"{text} is not JSON")


def _integer(text: str) -> int:
    if len(text) > _MAX_DIGITS:
        raise MalformedValue(f"a decimal of {len(text)} digits; long integers travel in hexadecimal")
    return int(text)


def _float(text: str) -> float:
    if len(text) > _MAX_FLOAT_LENGTH:
        raise MalformedValue(f"a float of {len(text)} characters")
    return float(text)


_decoder = json.JSONDecoder(
    object_pairs_hook=_refuse_object, parse_constant=_refuse_constant, parse_int=_integer, parse_float=_float
)


def parse(body: bytes) -> list[Any]:
    """A message: a JSON array that starts with its kind.

    Raises:
        MalformedValue: if it is anything else.
    """
    try:
        text = body.decode("ascii")
        message, end = _decoder.raw_decode(text)
    except (ValueError, RecursionError) as error:
        raise MalformedValue(str(error)[:200]) from None
    if end != len(text) or type(message) is not list or not message or type(message[0]) is not str:
        raise MalformedValue("not a message")
    return message


def _tag(wire: list[Any]) -> str:
    if not wire or type(wire[0]) is not str:
        raise MalformedValue("an array without a tag")
    return wire[0]


def _text(wire: list[Any]) -> str:
    if len(wire) != 2 or type(wire[1]) is not str:
        raise MalformedValue(f"bad payload of {wire[0]!r}")
    return wire[1]


def _number(wire: list[Any]) -> Any:
    try:
        return int(_text(wire), 16) if wire[0] == "i" else _FLOATS[_text(wire)]
    except (KeyError, ValueError):
        raise MalformedValue(f"bad payload of {wire[0]!r}") from None


def _scalar(wire: list[Any]) -> Any:
    """Value of a tagged form that holds no container."""
    tag = _tag(wire)
    if tag == "i" or tag == "f":
        return _number(wire)
    if tag == "b" or tag == "u":
        try:
            data = bytes.fromhex(_text(wire))
            return data if tag == "b" else data.decode("utf-8", "surrogatepass")
        except ValueError:
            raise MalformedValue(f"bad payload of {tag!r}") from None
    parts = wire[1:]
    if any(type(part) is list and _tag(part) not in ("i", "f") for part in parts):
        raise MalformedValue("a container where a number may be")
    parts = [_number(part) if type(part) is list else part for part in parts]
    if tag == "c" and len(parts) == 2 and all(type(part) is float for part in parts):
        return complex(*parts)
    if tag == "r" and len(parts) == 3 and all(type(part) is int for part in parts) and parts[2]:
        return range(*parts)
    raise MalformedValue(f"no such value: {tag[:20]!r}")


def _check_hashes(keys: list[Any]) -> None:
    hashes = sorted(map(hash, keys))
    window = _MAX_EQUAL_HASHES
    if any(low == high for low, high in zip(hashes, hashes[window:], strict=False)):
        raise MalformedValue(f"more than {window} keys of one hash: a table of them would take quadratic time to build")


def _keys(items: list[Any]) -> list[Any]:
    try:
        _check_hashes(items)
    except TypeError:
        raise MalformedValue("an unhashable key") from None
    return items


class _Reader:
    def __init__(self, max_nodes: int) -> None:
        self._nodes_left = max_nodes

    def read(self, wire: Wire, depth: int = 0, *, as_key: bool = False) -> Any:
        """Value of a form; a set that will be a key or an element is a frozenset."""
        if type(wire) is not list:
            return wire
        tag = _tag(wire)
        if tag not in _SEQUENCE_TAGS:
            if tag == "i" and len(_text(wire)) > _MAX_HEXADECIMAL:
                raise MalformedValue("an integer that Python would refuse to print")
            return _scalar(wire)
        self._nodes_left -= len(wire)
        if self._nodes_left < 0 or depth > MAX_DEPTH:
            raise MalformedValue("too large or too deep")
        if tag == "d":
            if not len(wire) % 2:
                raise MalformedValue("a key without a value")
            keys = _keys([self.read(item, depth + 1, as_key=True) for item in wire[1::2]])
            return dict(zip(keys, [self.read(item, depth + 1) for item in wire[2::2]], strict=True))
        items = [self.read(item, depth + 1, as_key=as_key or tag == "s") for item in wire[1:]]
        if tag == "l":
            return items
        if tag == "t":
            return tuple(items)
        return frozenset(_keys(items)) if as_key else set(_keys(items))


def read(wire: Wire, max_nodes: int = MAX_NODES) -> Any:
    """Value of a wire form, as builtin data.

    Raises:
        MalformedValue: on an unknown or inconsistent form, on one that is too large or too deep, and on sets and dicts
            whose keys were chosen to collide.
    """
    return _Reader(max_nodes).read(wire)


def read_text(wire: Wire) -> str:
    """Text of a wire form, for people and prompts: a lone surrogate, which nothing could encode, becomes `?`.

    Raises:
        MalformedValue: if it is anything else.
    """
    text = _scalar(wire) if type(wire) is list else wire
    if type(text) is not str:
        raise MalformedValue("not a text")
    return text.encode("utf-8", "replace").decode("utf-8")


def is_equal(wire: Wire, expected: Any, tolerance: float = 0.0, depth: int = 0) -> bool:
    """Whether a wire form stands for a value that `==` the expected one, which alone decides the types.

    Sets and dicts are looked up in the expected one's own table, so a hostile choice of keys costs nothing.

    Args:
        wire: as parsed; not trusted.
        expected: trusted.
        tolerance: allowed difference of two numbers when either is a float, times max(1, |expected|).

    Raises:
        MalformedValue: if the wire form is none.
    """
    if depth > MAX_DEPTH:
        raise MalformedValue("too deep")
    if type(wire) is not list or _tag(wire) not in _SEQUENCE_TAGS:
        return _is_equal_scalar(_scalar(wire) if type(wire) is list else wire, expected, tolerance)
    tag, items = wire[0], wire[1:]
    if tag == "l" or tag == "t":
        if not isinstance(expected, list if tag == "l" else tuple) or len(items) != len(expected):
            return False
        pairs = zip(items, expected, strict=True)
        return all(is_equal(item, answer, tolerance, depth + 1) for item, answer in pairs)
    if tag == "s":
        return isinstance(expected, set | frozenset) and _matches(items, expected) is not None
    if len(items) % 2:
        raise MalformedValue("a key without a value")
    keys = _matches(items[::2], expected) if isinstance(expected, dict) else None
    if keys is None:
        return False
    return all(is_equal(item, expected[key], tolerance, depth + 1) for key, item in zip(keys, items[1::2], strict=True))


def _matches(items: list[Wire], expected: Any) -> list[Any] | None:
    """For each item the expected key that it equals; None unless this pairs them off one to one."""
    if len(items) != len(expected):
        return None
    keys, places = list(expected), {key: place for place, key in enumerate(expected)}
    is_taken = bytearray(len(keys))
    matched = []
    for item in items:
        try:
            place = places.get(_Reader(_MAX_KEY_NODES).read(item, as_key=True))
        except TypeError:  # unhashable, so it is no key
            return None
        if place is None or is_taken[place]:
            return None
        is_taken[place] = True
        matched.append(keys[place])
    return matched


def _is_equal_scalar(value: Any, expected: Any, tolerance: float) -> bool:
    if isinstance(value, bool | int | float | complex):
        if not isinstance(expected, bool | int | float | complex):
            return False
        if value == expected or not tolerance:
            return bool(value == expected)
        try:
            return bool(abs(value - expected) <= tolerance * max(1.0, abs(expected)))
        except OverflowError:
            return False
    builtin = isinstance(expected, str | bytes | bytearray | range) or expected is None
    return builtin and type(value) is not list and bool(value == expected)
