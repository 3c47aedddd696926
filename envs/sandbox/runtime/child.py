"""Child process of one run, which reads the request, runs the code, and sends the results."""

from __future__ import annotations

import gc
import operator
import types
from collections.abc import Callable
from typing import Any

from . import codec, frames, solution

_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, types.MethodType)
_GENERATORS = (types.GeneratorType, map, filter, zip, enumerate, reversed)


def _enter(manager: Any) -> None:
    manager.__enter__()  # no result: the tests already have a handle of the context manager


def _exit(manager: Any) -> None:
    manager.__exit__(None, None, None)


_OPERATIONS: dict[str, Callable[..., Any]] = {
    "setattr": setattr,
    "delattr": delattr,
    "setitem": operator.setitem,
    "delitem": operator.delitem,
    "len": len,
    "list": list,
    "str": str,
    "repr": repr,
    "isinstance": isinstance,
    "eq": operator.eq,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "enter": _enter,
    "exit": _exit,
}


class _Server:
    """Server that performs the tests' operations on objects of the code under test, which have numbers (handles)."""

    def __init__(self, channel: int, module: types.ModuleType, first_handle: int) -> None:
        self._channel = channel
        self._module = module
        self._next = first_handle  # after a restart, handles of the first process must stay invalid
        self._objects: dict[int, Any] = {}
        self._instances: dict[int, str] = {}  # handles of the instances that the tests created, by `id(instance)`
        self._of_tests: dict[int, Callable[..., Any]] = {}

    def serve(self) -> None:
        while True:
            message = frames.read(self._channel)
            if message[0] == "stop":
                return
            frames.write(self._channel, self._reply(*message[1:]))

    def _reply(self, operation: str, operands: codec.Wire, keywords: codec.Wire) -> str:
        try:
            values = codec.decode(operands, self._resolve)
            if operation == "call":
                return self._call(values, codec.decode(keywords, self._resolve))
            if operation == "make":
                kind, *arguments = values
                made = kind(*arguments, **codec.decode(keywords, self._resolve))
                handle = self._handle("h", made)
                self._instances[id(made)] = handle
                return f'["v",{handle}]'
            if operation == "getattr" or operation == "getitem":
                found = getattr(*values) if operation == "getattr" else operator.getitem(*values)
                if solution.is_container(found):
                    return f'["c",{self._keep(found)},{codec.encode(found)}]'
                if id(found) in self._instances:  # an instance that the tests created
                    return f'["v",{self._instances[id(found)]}]'
                return f'["v",{self._encoded(found)}]'
            if operation == "next":
                return self._following(values[0])
            if operation == "update":
                return self._update(*values)
            return f'["v",{codec.encode(_OPERATIONS[operation](*values))}]'
        except BaseException as error:
            return f'["x",{solution.failure(error)}]'

    def _following(self, iterator: Any) -> str:
        try:
            item = next(iterator)
        except StopIteration:
            return '["over",null]'
        return f'["v",{self._encoded(item)}]'

    def _update(self, container: Any, before: Any, after: Any) -> str:
        if codec.encode(container, self._known) != codec.encode(before, self._known):
            raise RuntimeError("the tests and the code have both changed it; take it from its attribute again")
        solution.update(container, after)
        return '["v",null]'

    def _call(self, values: list[Any], keywords: dict[str, Any]) -> str:
        function, *arguments = values
        changeable = [place for place, argument in enumerate(arguments) if solution.is_container(argument)]
        before = [codec.encode(arguments[place], self._known) for place in changeable]
        value = self._encoded(function(*arguments, **keywords))
        # If the function changed containers among its arguments, they are returned with the value.
        changed = [
            place
            for place, then in zip(changeable, before, strict=True)
            if codec.encode(arguments[place], self._known) != then
        ]
        changes = [f",{place},{codec.encode(arguments[place])}" for place in changed]
        return f'["v",{value}{"".join(changes)}]'

    def _keep(self, value: Any) -> int:
        number, self._next = self._next, self._next + 1
        self._objects[number] = value
        return number

    def _handle(self, tag: str, value: Any) -> str:
        return f'["{tag}",{self._keep(value)}]'

    def _known(self, value: Any) -> str:
        """Encode an object by its identity, to detect changes of the container that contains this object."""
        return f'["id",{id(value)}]'

    def _encoded(self, value: Any) -> str:
        """Encode a result as plain data, as the handle of an iterator or callable, or as the data of a regex match."""
        if isinstance(value, _GENERATORS):
            return self._handle("y", value)
        kind = type(value)
        if kind.__name__ == "Match" and kind.__module__ == "re":
            groups = range(value.re.groups + 1)
            parts = [tuple(map(value.group, groups)), tuple(map(value.span, groups)), dict(value.re.groupindex)]
            return f'["m",{",".join(map(codec.encode, parts))}]'
        if isinstance(value, _FUNCTIONS) or (callable(value) and not codec.is_extended(value)):
            return self._handle("k", value)
        return codec.encode(value)

    def _resolve(self, wire: list[Any]) -> Any:
        if wire[0] == "g":
            return getattr(self._module, wire[1])
        return self._function_of_tests(wire[1]) if wire[0] == "k" else self._objects[wire[1]]

    def _function_of_tests(self, number: int) -> Callable[..., Any]:
        """Return a proxy of a function of the tests. A call of the proxy runs the function in the jail of the tests."""

        def call(*arguments: Any, **keywords: Any) -> Any:
            wires = f"{codec.encode(list(arguments))},{codec.encode(keywords)}"
            frames.write(self._channel, f'["back",{number},{wires}]')
            while True:
                kind, *parts = frames.read(self._channel)
                if kind == "return":
                    return codec.decode(parts[0], self._resolve)
                if kind == "raise":
                    raise solution.rebuilt(parts[0])
                frames.write(self._channel, self._reply(*parts))  # the function of the tests calls the solution

        return self._of_tests.setdefault(number, call)


def _answer_calls(channel: int, request: dict[str, Any]) -> None:
    try:
        module = solution.load(request["code"], "solution")
        function = getattr(module, request["function"])
    except BaseException as error:
        frames.write(channel, f'["load",{solution.failure(error)}]')
        return
    for arguments, keywords in request["calls"]:
        try:
            if type(arguments) is list:  # serialized, which only some types need
                arguments, keywords = codec.decode(arguments), codec.decode(keywords)
            result = f'["v",{codec.encode(function(*arguments, **keywords))}]'
        except BaseException as error:
            result = f'["x",{solution.failure(error)}]'
        frames.write(channel, result)  # immediately, because results before a crash are scored


def _run_program(channel: int, request: dict[str, Any]) -> None:
    result = '["v",null]'
    try:
        solution.load(request["code"], "__main__")
    except SystemExit as leaving:
        if leaving.code is not None and leaving.code != 0:
            result = f'["x",{solution.failure(leaving)}]'
    except BaseException as error:
        result = f'["x",{solution.failure(error)}]'
    frames.write(channel, result)


def _offer_objects(channel: int, request: dict[str, Any]) -> None:
    try:
        module = solution.load(request["code"], "solution")
    except BaseException as error:
        frames.write(channel, f'["load",{solution.failure(error)}]')
        return
    frames.write(channel, '["ready"]')
    _Server(channel, module, request["first_handle"]).serve()


_SILENT_END = '["end","",""]'
Mode = Callable[[int, dict[str, Any]], None]
MODES: dict[str, Mode] = {"calls": _answer_calls, "program": _run_program, "objects": _offer_objects}


def answer(source: int, channel: int, streams: solution.Streams) -> None:
    """Read a request from the descriptor `source`, run it, and write its results to the descriptor `channel`."""
    gc.enable()
    request = frames.read(source)
    if request["seed"]:
        solution.seed_generators(request["seed"])  # for 0, the seeds of the worker process (zygote) are kept
    if request["stdin"]:
        solution.feed(request["stdin"])
    MODES[request["mode"]](channel, request)
    frames.write(channel, f'["end",{streams.texts(request["max_stdout_length"])}]' if streams.are_used else _SILENT_END)
