"""Decoding and comparison, in the trusted process, of values that sandboxed code sends.

The decoding time is limited: long numbers, deep values, and hash tables with many untrusted keys of the same hash are
refused. No methods of untrusted classes are called.
"""

from __future__ import annotations

import cmath
import json
import re
from collections import deque
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any, NoReturn

from .runtime.codec import EXTENDED, MAX_DEPTH, TYPES, Wire, extended

MAX_NODES = 1_000_000
MAX_PARTS = 100_000  # maximum number of arrays in all messages of a run. Decoding them takes at most about 0.1 s.
_MAX_EQUAL_HASHES = 64
_MAX_KEY_NODES = 10_000
_MAX_DIGITS = 17
_MAX_FLOAT_LENGTH = 32
_MAX_HEXADECIMAL = 3500  # below 4300 decimal digits, the limit of str(), because values are logged
_MAX_DECIMAL, _MAX_EXPONENT, _MAX_ISO = 4300, 6144, 40
_MAX_BITS = 1 << 16
_DECIMAL = re.compile(r"-?(?:\d+(?:\.\d+)?(?:E([+-]\d{1,5}))?|NaN|Infinity)", re.ASCII)
_SURROGATES = re.compile("[\ud800-\udfff]")
_SEQUENCE_TAGS = ("l", "t", "s", "d")
_TABLES = ("Counter", "OrderedDict")
_NUMBERS = bool | int | float | complex
_FLOATS = {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}


class MalformedValue(ValueError):
    """Raised for data that are not a valid serialized value, for example if the code has manipulated its process."""


class TooLarge(MalformedValue):
    """Raised for a value with too many parts. This is not a sign of manipulation."""


def _refuse_object(pairs: Sequence[tuple[str, Any]]) -> NoReturn:
    raise MalformedValue("a message must not contain JSON objects")


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


def num_parts(body: bytes) -> int:
    """Return an upper bound of the number of arrays in a serialized message. The message is not parsed."""
    return body.count(b"[")


def parse(body: bytes, max_parts: int = MAX_PARTS) -> list[Any]:
    """Parse a message. Raise TooLarge if it contains more than `max_parts` arrays, and MalformedValue if it is invalid.

    A message is a JSON array whose first item is the kind of the message.
    """
    if num_parts(body) > max_parts:
        raise TooLarge(f"sent a value of more than {max_parts} parts")
    try:
        text = body.decode("ascii")
        message, end = _decoder.raw_decode(text)
    except (ValueError, RecursionError) as error:
        raise MalformedValue(str(error)[:200]) from None
    if end != len(text) or type(message) is not list or not message or type(message[0]) is not str:
        raise MalformedValue("a message must be a JSON array that starts with its kind")
    return message


def _tag(wire: list[Any]) -> str:
    if not wire or type(wire[0]) is not str:
        raise MalformedValue("an array must start with a tag")
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
    """Decode a number, text, bytes or range that is serialized as an array."""
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
        raise MalformedValue("a part of a range or complex number must be a number")
    parts = [_number(part) if type(part) is list else part for part in parts]
    if tag == "c" and len(parts) == 2 and all(type(part) is float for part in parts):
        return complex(*parts)
    if tag == "r" and len(parts) == 3 and all(type(part) is int for part in parts) and parts[2]:
        return range(*parts)
    raise MalformedValue(f"no such value: {tag[:20]!r}")


def _keys(items: list[Any]) -> list[Any]:
    """Return the keys of a set or dict. Raise MalformedValue if a key is unhashable or many have the same hash."""
    try:
        hashes = sorted(map(hash, items))
    except TypeError:
        raise MalformedValue("a key or set element is not hashable") from None
    window = _MAX_EQUAL_HASHES
    if any(low == high for low, high in zip(hashes, hashes[window:], strict=False)):
        raise MalformedValue(f"more than {window} keys of one hash: a table of them would take quadratic time to build")
    return items


def _check_parts(name: str, parts: list[Any]) -> None:
    """Raise MalformedValue if the parts of a value, such as a Decimal, are invalid, or the value is slow to use."""
    if name == "Decimal":
        found = _DECIMAL.fullmatch(parts[0]) if len(parts) == 1 and type(parts[0]) is str else None
        is_right = found is not None and len(parts[0]) <= _MAX_DECIMAL and abs(int(found[1] or 0)) <= _MAX_EXPONENT
    elif name in ("Fraction", "timedelta"):
        is_right = all(type(part) is int for part in parts)
        is_right = is_right and len(parts) == (2 if name == "Fraction" else 3)
    elif name == "deque":
        is_right = bool(parts) and (parts[0] is None or (type(parts[0]) is int and parts[0] >= len(parts) - 1))
    else:
        is_right = len(parts) == 1 and type(parts[0]) is str and len(parts[0]) <= _MAX_ISO
    if not is_right:
        raise MalformedValue(f"no such {name[:20]}")


class _Reader:
    def __init__(self, max_nodes: int, *, is_kept: bool = True) -> None:
        self._nodes_left = max_nodes
        self._is_kept = is_kept

    def read(self, wire: Wire, depth: int = 0, *, as_key: bool = False) -> Any:
        """Decode a serialized value. A set in a set, or in a key of a dict, becomes a frozenset."""
        if type(wire) is not list:
            return wire
        tag = _tag(wire)
        if tag == "e":
            return self._extended(wire, depth)
        if tag not in _SEQUENCE_TAGS:
            value = _scalar(wire)
            if self._is_kept:
                self._check_kept(tag, value, wire)
            return value
        self._count(len(wire), depth)
        if tag == "d":
            if not len(wire) % 2:
                raise MalformedValue("a dict has a key without a value")
            keys = _keys([self.read(item, depth + 1, as_key=True) for item in wire[1::2]])
            return dict(zip(keys, [self.read(item, depth + 1) for item in wire[2::2]], strict=True))
        items = [self.read(item, depth + 1, as_key=as_key or tag == "s") for item in wire[1:]]
        if tag == "l":
            return items
        if tag == "t":
            return tuple(items)
        return frozenset(_keys(items)) if as_key else set(_keys(items))

    def _check_kept(self, tag: str, value: Any, wire: list[Any]) -> None:
        if tag == "i" and len(wire[1]) > _MAX_HEXADECIMAL:
            raise MalformedValue("an integer that Python would refuse to print")
        if tag == "u" and _SURROGATES.search(value):
            raise MalformedValue("a text with a lone surrogate, which nothing could encode")
        if tag == "r":
            is_short = abs(value.stop - value.start) // abs(value.step) < MAX_NODES
            self._count(len(value) if is_short else MAX_NODES + 1)

    def _count(self, num_nodes: int, depth: int = 0) -> None:
        self._nodes_left -= num_nodes
        if self._nodes_left < 0 or depth > MAX_DEPTH:
            raise MalformedValue("too large or too deep")

    def _extended(self, wire: list[Any], depth: int) -> Any:
        self._count(len(wire), depth)
        name = wire[1] if len(wire) > 1 else None
        if type(name) is not str or (name not in EXTENDED and (name not in TYPES or len(wire) > 2)):
            raise MalformedValue("the type is not supported")
        if name in TYPES:
            return TYPES[name]
        if name in _TABLES:
            return extended(name, [part for item in self.read(["d", *wire[2:]], depth).items() for part in item])
        parts = [self.read(part, depth + 1) for part in wire[2:]]
        _check_parts(name, parts)
        try:
            return extended(name, parts)
        except (ValueError, ArithmeticError):
            raise MalformedValue(f"no such {name}") from None


def read(wire: Wire, max_nodes: int = MAX_NODES) -> Any:
    """Decode a serialized value. Raise MalformedValue if it is invalid, large or deep, or has many keys of one hash."""
    return _Reader(max_nodes).read(wire)


def check(wire: Wire, max_nodes: int = MAX_NODES) -> None:
    """Raise MalformedValue as `read` does, but allow long integers, long ranges and surrogates."""
    _Reader(max_nodes, is_kept=False).read(wire)


def read_text(wire: Wire) -> str:
    """Decode a serialized string. Surrogates become `?`. Raise MalformedValue if the value is not a string."""
    text = _scalar(wire) if type(wire) is list else wire
    if type(text) is not str:
        raise MalformedValue("not a text")
    return text.encode("utf-8", "replace").decode("utf-8")


def is_equal(wire: Wire, expected: Any, tolerance: float = 0.0, depth: int = 0) -> bool:
    """Return True if a serialized value equals the expected value. docs/sandbox.md has a table of the rules.

    Untrusted keys are looked up in the hash table of `expected`, so that collisions of hashes take no extra time.
    MalformedValue is raised if `wire` is invalid.
    """
    if depth > MAX_DEPTH:
        raise MalformedValue("too deep")
    if type(wire) is list and _tag(wire) == "e":
        return _is_equal_extended(wire, expected, tolerance, depth)
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
        raise MalformedValue("a dict has a key without a value")
    keys = _matches(items[::2], expected) if isinstance(expected, dict) else None
    if keys is None:
        return False
    return all(is_equal(item, expected[key], tolerance, depth + 1) for key, item in zip(keys, items[1::2], strict=True))


def _is_equal_extended(wire: list[Any], expected: Any, tolerance: float, depth: int) -> bool:
    name = wire[1] if len(wire) > 1 else None
    if name in _TABLES:
        return is_equal(["d", *wire[2:]], expected, tolerance, depth)
    if name == "deque":
        return isinstance(expected, deque) and is_equal(["l", *wire[3:]], list(expected), tolerance, depth)
    value = _Reader(_MAX_KEY_NODES).read(wire)
    if isinstance(value, Decimal | Fraction):
        return isinstance(expected, _NUMBERS | Decimal | Fraction) and _is_same_number(value, expected)
    return type(value) is type(expected) and bool(value == expected)


def _matches(items: list[Wire], expected: Any) -> list[Any] | None:
    """Return the key in `expected` of each serialized item. None: items and keys do not match one to one."""
    if len(items) != len(expected):
        return None
    keys, places = list(expected), {key: place for place, key in enumerate(expected)}
    is_taken = bytearray(len(keys))
    matched = []
    for item in items:
        try:
            place = places.get(_Reader(_MAX_KEY_NODES).read(item, as_key=True))
        except TypeError:  # unhashable
            return None
        if place is None or is_taken[place]:
            return None
        is_taken[place] = True
        matched.append(keys[place])
    return matched


def _is_equal_scalar(value: Any, expected: Any, tolerance: float) -> bool:
    if isinstance(value, _NUMBERS):
        if isinstance(expected, Decimal | Fraction):
            return _is_same_number(value, expected)
        return isinstance(expected, _NUMBERS) and _is_equal_number(value, expected, tolerance)
    builtin = isinstance(expected, str | bytes | bytearray | range) or expected is None
    return builtin and type(value) is not list and bool(value == expected)


def _is_same_number(value: Any, expected: Any) -> bool:
    if isinstance(value, int) and value.bit_length() > _MAX_BITS:
        return False  # the conversion to Decimal would be slow
    return bool(value == expected or (value != value and expected != expected))


def _is_equal_number(value: Any, expected: Any, tolerance: float) -> bool:
    if value == expected:
        return True
    if not (_is_finite(value) and _is_finite(expected)):
        return _parts(value) == _parts(expected)
    if not tolerance or (isinstance(expected, int) and _is_whole(value)):
        return False  # whole numbers of any type and size must be equal exactly
    try:
        return bool(abs(value - expected) <= tolerance * max(1.0, abs(expected)))
    except OverflowError:
        return False


def _is_finite(number: Any) -> bool:
    return isinstance(number, int) or cmath.isfinite(number)


def _is_whole(number: Any) -> bool:
    if isinstance(number, complex):
        return number.imag == 0 and number.real.is_integer()
    return isinstance(number, int) or number.is_integer()


def _parts(number: Any) -> tuple[Any, Any]:
    """Return the real and imaginary part. nan is replaced by the string "nan", because nan != nan."""
    real, imaginary = (number.real, number.imag) if isinstance(number, complex) else (number, 0)
    return real if real == real else "nan", imaginary if imaginary == imaginary else "nan"
