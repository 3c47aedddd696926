"""Stand-ins, in the jail of the tests, for functions, classes and instances that live in the solver's jail.

What a function or a method returns is plain data, or an error. Only two things are handles: what calling a class under
test returns, and a method. Otherwise a function could return an object that says yes to whatever a test asks of it, and
a test such as `abs(f(x) - expected) < 1e-6` would hand the expected answer to the code under test.
"""

from __future__ import annotations

import builtins
import json
from collections.abc import Iterator
from typing import Any, NoReturn

from . import codec, frames

FUNCTION, CLASS, INSTANCE = "function", "class", "instance"


class SolutionGone(BaseException):
    """The code under test runs no more. Not an Exception: a test that expects one must not take this for it."""


class Exchange:
    """Sends operations out and brings their results in."""

    def __init__(self, channel: int) -> None:
        self._channel = channel

    def perform(self, operation: str, *operands: Any, **keywords: Any) -> codec.Wire:
        """Result of an operation on the other side, still encoded; operands that it changed are changed here too.

        Raises:
            Exception: what the operation raised there, as the nearest builtin type under the type's own name.
        """
        wires = f"{codec.encode(list(operands), _wire)},{codec.encode(keywords, _wire)}"
        frames.write(self._channel, f'["do","{operation}",{wires}]')
        kind, value, *changes = frames.read(self._channel)
        if kind == "gone":
            raise SolutionGone(value)
        if kind == "x":
            name, message, _, bases = value
            _raise(codec.decode(name), codec.decode(message), bases)
        for place, after in zip(changes[::2], changes[1::2], strict=True):
            _update(operands[1 + place], codec.decode(after))
        return value


def _raise(kind: str, message: str, bases: list[str]) -> NoReturn:
    for base in bases:
        known = getattr(builtins, base, None)
        if isinstance(known, type) and issubclass(known, Exception):
            try:
                error = known(message) if kind == base else type(kind, (known,), {})(message)
            except (TypeError, ValueError):  # UnicodeDecodeError and the like want more than a message
                break
            raise error
    raise RuntimeError(f"{kind}: {message}")


def _update(argument: Any, after: Any) -> None:
    """Do to the tests' own object what the solution did to its copy."""
    if type(argument) is list or type(argument) is bytearray:
        argument[:] = after
    elif type(argument) is dict or type(argument) is set:
        argument.clear()
        argument.update(after)


def _wire(value: Any) -> str:
    return json.dumps(value._wire) if type(value) is StandIn else codec.refuse(value)


def _is_handle(wire: codec.Wire) -> bool:
    return type(wire) is list and wire[0] == "h"


class StandIn:
    """An object of the solution's, operated by name.

    It equals only other stand-ins, by the solution's own `==`: were comparisons with plain data left to the solution,
    an object that equals everything would pass every test. Containment is by iteration for the same reason.
    """

    __slots__ = ("_exchange", "_kind", "_wire")
    _exchange: Exchange
    _kind: str
    _wire: codec.Wire

    def __init__(self, exchange: Exchange, wire: codec.Wire, kind: str) -> None:
        for name, value in (("_exchange", exchange), ("_wire", wire), ("_kind", kind)):
            object.__setattr__(self, name, value)

    def _perform(self, operation: str, *operands: Any, **keywords: Any) -> codec.Wire:
        return self._exchange.perform(operation, self, *operands, **keywords)

    def _value(self, operation: str, *operands: Any, **keywords: Any) -> Any:
        return codec.decode(self._perform(operation, *operands, **keywords))

    def _handle(self, wire: codec.Wire, kind: str) -> StandIn:
        return StandIn(self._exchange, wire, kind)

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        wire = self._perform("call", *arguments, **keywords)
        return self._handle(wire, INSTANCE) if self._kind == CLASS and _is_handle(wire) else codec.decode(wire)

    def __getattr__(self, name: str) -> Any:
        wire = self._perform("getattr", name)
        return self._handle(wire, FUNCTION) if _is_handle(wire) else codec.decode(wire)

    def __setattr__(self, name: str, value: Any) -> None:
        self._perform("setattr", name, value)

    def __delattr__(self, name: str) -> None:
        self._perform("delattr", name)

    def __getitem__(self, key: Any) -> Any:
        return self._value("getitem", key)

    def __setitem__(self, key: Any, value: Any) -> None:
        self._perform("setitem", key, value)

    def __delitem__(self, key: Any) -> None:
        self._perform("delitem", key)

    def __len__(self) -> int:
        return int(self._value("len"))

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Iterator[Any]:
        return iter(self._value("list"))

    def __str__(self) -> str:
        return str(self._value("str"))

    def __repr__(self) -> str:
        return str(self._value("repr"))

    __hash__ = object.__hash__

    def __instancecheck__(self, value: Any) -> bool:
        return type(value) is StandIn and bool(value._value("isinstance", self))

    def _compare(self, operation: str, other: Any) -> Any:
        return bool(self._value(operation, other)) if type(other) is StandIn else NotImplemented

    def __eq__(self, other: object) -> Any:
        return self._compare("eq", other)

    def __lt__(self, other: Any) -> Any:
        return self._compare("lt", other)

    def __le__(self, other: Any) -> Any:
        return self._compare("le", other)

    def __gt__(self, other: Any) -> Any:
        return self._compare("gt", other)

    def __ge__(self, other: Any) -> Any:
        return self._compare("ge", other)

    def __enter__(self) -> StandIn:
        self._perform("enter")
        return self

    def __exit__(self, *error: object) -> None:
        self._perform("exit")
