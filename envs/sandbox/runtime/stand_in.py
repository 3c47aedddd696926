"""Proxies in the jail of the tests (judge) for functions, classes and instances in the jail of the code (solver).

Functions and methods return plain data, or proxies with few operations. Otherwise a function could return an object
that passes every comparison. A test such as `abs(f(x) - expected) < 1e-6` would then send the expected value to the
code under test.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

from . import codec, frames, solution

_MAX_CONTAINERS = 32


class SolutionGone(BaseException):
    """Raised if the code under test has ended. A BaseException, so that `assertRaises(Exception)` does not catch it."""


class Exchange:
    """Connection of the tests to the code under test. It sends operations and decodes their results."""

    def __init__(self, channel: int) -> None:
        self._channel = channel
        self._functions: list[Callable[..., Any]] = []  # functions of the tests that the code may call, by number
        # Containers of the code that the tests may change: handle, copy and serialized copy.
        self._containers: list[tuple[codec.Wire, Any, str]] = []
        # Instances that the tests assigned to attributes, by the owner's handle and the attribute's name.
        self._placed: dict[tuple[str, str], Instance] = {}

    def perform(self, operation: str, *operands: Any, **keywords: Any) -> list[Any]:
        """Perform an operation in the jail of the code, copy changes of operands, and return the serialized reply."""
        if self._containers:
            self._write_back()
        reply = self._ask(f'["do","{operation}",{self.wire(list(operands))},{self.wire(keywords)}]')
        if reply[0] == "v":
            for place, after in zip(reply[2::2], reply[3::2], strict=True):
                solution.update(operands[1 + place], codec.decode(after))
        return reply

    def _ask(self, message: str) -> list[Any]:
        """Send a message and return the reply. Before the reply, the tested code may call functions of the tests."""
        frames.write(self._channel, message)
        while True:
            reply: list[Any] = frames.read(self._channel)
            if reply[0] == "gone":
                raise SolutionGone(reply[1])
            if reply[0] == "x":
                raise solution.rebuilt(reply[1])
            if reply[0] != "back":
                return reply
            self._call_back(*reply[1:])

    def _call_back(self, number: int, arguments: codec.Wire, keywords: codec.Wire) -> None:
        try:
            result = self._functions[number](*codec.decode(arguments), **codec.decode(keywords))
            answer = f'["return",{self.wire(result)}]'
        except Exception as error:
            answer = f'["raise",{solution.failure(error)}]'
        frames.write(self._channel, answer)

    def wire(self, value: Any) -> str:
        """Encode a value. Proxies are encoded as handles, and functions of the tests as numbers."""
        return codec.encode(value, self._remote)

    def _remote(self, value: Any) -> str:
        if isinstance(value, Remote):
            return json.dumps(value._wire)
        if callable(value):
            if value not in self._functions:
                self._functions.append(value)
            return f'["k",{self._functions.index(value)}]'
        return codec.refuse(value)

    def value(self, reply: list[Any]) -> Any:
        """Decode a reply: plain data, a callable, an iterator or a regex match."""
        kind, wire, *rest = reply
        if kind == "c":
            held = codec.decode(rest[0])
            self._containers.append((["h", wire], held, self.wire(held)))
            return held
        return codec.decode(wire, self._resolve)

    def place(self, owner: codec.Wire, name: str, value: Any) -> None:
        """Record that the tests assigned `value` to the attribute `name`. Only instances are recorded, for `placed`."""
        if isinstance(value, Instance):
            self._placed[json.dumps(owner), name] = value
        else:
            self._placed.pop((json.dumps(owner), name), None)

    def placed(self, owner: codec.Wire, name: str, reply: list[Any]) -> Instance | None:
        """Return the instance that the tests assigned to the attribute. None: the attribute has another value now."""
        found = self._placed.get((json.dumps(owner), name))
        return found if found is not None and reply[1] == found._wire else None

    def _resolve(self, wire: list[Any]) -> Any:
        makers: dict[str, Callable[[], Any]] = {
            "k": lambda: Method(self, ["h", wire[1]]),
            "y": lambda: Stream(self, ["h", wire[1]]),
            "m": lambda: Match(*map(codec.decode, wire[1:])),
        }
        return makers[wire[0]]() if wire[0] in makers else codec.refuse_handle(wire)

    def _write_back(self) -> None:
        """Send changes that the tests made in containers to the code's jail. Drop containers without references."""
        held, self._containers = self._containers, []
        kept = []
        while held:
            handle, copy, before = held.pop(0)
            after = self.wire(copy)
            if after != before:
                self._ask(f'["do","update",["l",{json.dumps(handle)},{before},{after}],["d"]]')
            # The tests may refer to a nested container only.
            if sys.getrefcount(copy) > 2 or "[" in after[1:]:
                kept.append((handle, copy, after))
        self._containers = kept[-_MAX_CONTAINERS:]


class Remote:
    """Proxy for an object in the jail of the code under test. Its truth value is True. It equals only itself."""

    __slots__ = ("_exchange", "_wire")
    _exchange: Exchange
    _wire: codec.Wire

    def __init__(self, exchange: Exchange, wire: codec.Wire) -> None:
        object.__setattr__(self, "_exchange", exchange)
        object.__setattr__(self, "_wire", wire)

    def _perform(self, operation: str, *operands: Any, **keywords: Any) -> list[Any]:
        return self._exchange.perform(operation, self, *operands, **keywords)

    def _value(self, operation: str, *operands: Any, **keywords: Any) -> Any:
        return self._exchange.value(self._perform(operation, *operands, **keywords))


class Method(Remote):
    """Proxy for a callable that is an attribute or a result of the code under test. The proxy has no attributes."""

    # An attribute could receive the expected value, as in `account.owner.startswith("expected")`.
    __slots__ = ()

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return self._value("call", *arguments, **keywords)


class Stream(Remote):
    """Proxy for an iterator of the code under test."""

    __slots__ = ()

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> Any:
        reply = self._perform("next")
        if reply[0] == "over":
            raise StopIteration
        return self._exchange.value(reply)


class Function(Remote):
    """Proxy for a function under test. Attributes of the function can be read, set and deleted."""

    __slots__ = ()

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return self._value("call", *arguments, **keywords)

    def __getattr__(self, name: str) -> Any:
        reply = self._perform("getattr", name)
        placed = self._exchange.placed(self._wire, name, reply)
        return self._exchange.value(reply) if placed is None else placed

    def __setattr__(self, name: str, value: Any) -> None:
        self._perform("setattr", name, value)
        self._exchange.place(self._wire, name, value)

    def __delattr__(self, name: str) -> None:
        self._perform("delattr", name)


class Class(Function):
    """Proxy for a class under test."""

    __slots__ = ()

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        reply = self._perform("make", *arguments, **keywords)
        return Instance(self._exchange, reply[1])

    def __instancecheck__(self, value: Any) -> bool:
        return isinstance(value, Instance) and bool(value._value("isinstance", self))


def _comparison(operation: str) -> Callable[[Any, Any], Any]:
    def compare(self: Any, other: Any) -> Any:
        return bool(self._value(operation, other)) if isinstance(other, Instance) else NotImplemented

    return compare


class Instance(Function):
    """Proxy for an instance of a class under test.

    The code's `==` is used only between instances. Otherwise an object that equals everything would pass every test.
    For the same reason, `in` iterates over the items.
    """

    __slots__ = ()

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

    def __next__(self) -> Any:
        return Stream.__next__(self)  # type: ignore[arg-type]

    def __str__(self) -> str:
        return str(self._value("str"))

    def __repr__(self) -> str:
        return str(self._value("repr"))

    __hash__ = object.__hash__

    __eq__ = _comparison("eq")
    __lt__ = _comparison("lt")
    __le__ = _comparison("le")
    __gt__ = _comparison("gt")
    __ge__ = _comparison("ge")

    def __enter__(self) -> Instance:
        self._perform("enter")
        return self

    def __exit__(self, *error: object) -> None:
        self._perform("exit")


class Match:
    """Copy of a `re.Match` object of the code under test."""

    def __init__(self, groups: tuple[Any, ...], spans: tuple[Any, ...], names: dict[str, int]) -> None:
        self._groups, self._spans, self._names = groups, spans, names

    def _number(self, group: Any) -> int:
        number = self._names.get(group, -1) if isinstance(group, str) else group
        if not 0 <= number < len(self._groups):
            raise IndexError("no such group")
        return int(number)

    def __getitem__(self, group: Any) -> Any:
        return self._groups[self._number(group)]

    def group(self, *groups: Any) -> Any:
        found = tuple([self[group] for group in groups or (0,)])
        return found if len(found) > 1 else found[0]

    def groups(self, default: Any = None) -> tuple[Any, ...]:
        return tuple([default if group is None else group for group in self._groups[1:]])

    def groupdict(self, default: Any = None) -> dict[str, Any]:
        return {name: default if self[name] is None else self[name] for name in self._names}

    def span(self, group: Any = 0) -> Any:
        return self._spans[self._number(group)]

    def start(self, group: Any = 0) -> Any:
        return self.span(group)[0]

    def end(self, group: Any = 0) -> Any:
        return self.span(group)[1]
