"""Stand-ins, in the jail of the tests, for functions, classes and instances that live in the solver's jail.

What a function or a method returns is plain data, or an error. Handles are few, and each kind can do one thing: an
instance of a class under test is operated by name, a function or method can be called and nothing else, a generator
can be asked for its next item. Otherwise a function could return an object that says yes to whatever a test asks of
it, and a test such as `abs(f(x) - expected) < 1e-6` would hand the expected answer to the code under test.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

from . import codec, frames, solution

_MAX_CONTAINERS = 32


class SolutionGone(BaseException):
    """The code under test runs no more. Not an Exception: a test that expects one must not take this for it."""


class Exchange:
    """Sends operations out and brings their results in."""

    def __init__(self, channel: int) -> None:
        self._channel = channel
        self._functions: list[Callable[..., Any]] = []
        """Functions of the tests, by the number that the solution calls them by."""
        self._containers: list[tuple[codec.Wire, Any, str]] = []
        """Handle, copy and wire form of what the solution holds and the tests may write to."""
        self._placed: dict[tuple[str, str], Instance] = {}
        """Instances that the tests have put into an attribute, by the owner's handle and the attribute's name."""

    def perform(self, operation: str, *operands: Any, **keywords: Any) -> list[Any]:
        """Reply to an operation on the other side, still encoded; operands that it changed are changed here too.

        Raises:
            Exception: what the operation raised there, as the nearest builtin type under the type's own name.
        """
        if self._containers:
            self._write_back()
        reply = self._ask(f'["do","{operation}",{self.wire(list(operands))},{self.wire(keywords)}]')
        if reply[0] == "v":
            for place, after in zip(reply[2::2], reply[3::2], strict=True):
                solution.update(operands[1 + place], codec.decode(after))
        return reply

    def _ask(self, message: str) -> list[Any]:
        """The reply to a message; functions of the tests that the other side calls for it are called meanwhile."""
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
        """A value on its way out: stand-ins as their handles, functions of the tests as something to call."""
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
        """What came back: plain data, a function, a generator or a match."""
        kind, wire, *rest = reply
        if kind == "c":
            held = codec.decode(rest[0])
            self._containers.append((["h", wire], held, self.wire(held)))
            return held
        return codec.decode(wire, self._resolve)

    def place(self, owner: codec.Wire, name: str, value: Any) -> None:
        """Remember what the tests assigned: an attribute is an instance only where they made it one."""
        if isinstance(value, Instance):
            self._placed[json.dumps(owner), name] = value
        else:
            self._placed.pop((json.dumps(owner), name), None)

    def placed(self, owner: codec.Wire, name: str, reply: list[Any]) -> Instance | None:
        """The instance that the tests put there, if that is what is there still."""
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
        """Do to the solution's containers what the tests have done to their copies; let go of copies nobody holds."""
        held, self._containers = self._containers, []
        kept = []
        while held:
            handle, copy, before = held.pop(0)
            after = self.wire(copy)
            if after != before:
                self._ask(f'["do","update",["l",{json.dumps(handle)},{before},{after}],["d"]]')
            # A part of it may be held where the whole is not.
            if sys.getrefcount(copy) > 2 or "[" in after[1:]:
                kept.append((handle, copy, after))
        self._containers = kept[-_MAX_CONTAINERS:]


class Remote:
    """An object of the solution's. It is true, it equals only itself, and no more is known of it here."""

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
    """A function that was an attribute or a result. Were more of it reachable than the call, an object that is
    callable could be handed the expected answer, as by `account.owner.startswith("the answer")`."""

    __slots__ = ()

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return self._value("call", *arguments, **keywords)


class Stream(Remote):
    """A generator."""

    __slots__ = ()

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> Any:
        reply = self._perform("next")
        if reply[0] == "over":
            raise StopIteration
        return self._exchange.value(reply)


class Function(Remote):
    """A function under test. It can be called, and has attributes by name."""

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
    """A class under test: a call makes an instance."""

    __slots__ = ()

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        reply = self._perform("make", *arguments, **keywords)
        return Instance(self._exchange, reply[1])

    def __instancecheck__(self, value: Any) -> bool:
        return isinstance(value, Instance) and bool(value._value("isinstance", self))


class Instance(Function):
    """An instance of a class under test, operated by name.

    It equals only other instances, by the solution's own `==`: were comparisons with plain data left to the solution,
    an object that equals everything would pass every test. Containment is by iteration for the same reason.
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
        return Stream.__next__(self)  # type: ignore[arg-type]  # the same of another kind of object

    def __str__(self) -> str:
        return str(self._value("str"))

    def __repr__(self) -> str:
        return str(self._value("repr"))

    __hash__ = object.__hash__

    def _compare(self, operation: str, other: Any) -> Any:
        return bool(self._value(operation, other)) if isinstance(other, Instance) else NotImplemented

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

    def __enter__(self) -> Instance:
        self._perform("enter")
        return self

    def __exit__(self, *error: object) -> None:
        self._perform("exit")


class Match:
    """What a match of a regular expression tells, as plain data: it looks into nothing on the other side."""

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
