"""Objects of the solution that tests in another jail work with by handle."""

from __future__ import annotations

import operator
import types
from collections.abc import Callable
from typing import Any

from . import codec, frames, solution

_MUTABLE = (list, dict, set, bytearray)


def _enter(manager: Any) -> None:
    manager.__enter__()  # tests go on with the handle that they have


def _exit(manager: Any) -> None:
    manager.__exit__(None, None, None)


_OPERATIONS: dict[str, Callable[..., Any]] = {
    "setattr": setattr,
    "delattr": delattr,
    "getitem": operator.getitem,
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


class _Handles:
    """Table of the objects that have gone out by handle; they live as long as the run."""

    def __init__(self, module: types.ModuleType, first: int) -> None:
        self._module = module
        self._next = first  # not zero in a second life: a handle of the first one must not name another object
        self._objects: dict[int, Any] = {}

    def hand_out(self, value: Any) -> str:
        number, self._next = self._next, self._next + 1
        self._objects[number] = value
        return f'["h",{number}]'

    def resolve(self, wire: list[Any]) -> Any:
        return getattr(self._module, wire[1]) if wire[0] == "g" else self._objects[wire[1]]


def _call(handles: _Handles, operands: codec.Wire, keywords: codec.Wire) -> str:
    function, *arguments = codec.decode(operands, handles.resolve)
    changeable = [place for place, argument in enumerate(arguments) if type(argument) in _MUTABLE]
    before = [codec.encode(arguments[place]) for place in changeable]
    result = function(*arguments, **codec.decode(keywords, handles.resolve))
    value = handles.hand_out(result) if isinstance(function, type) else codec.encode(result)
    # Tests may look at a list that they passed in: what the function did to it goes back with the value.
    after = [codec.encode(arguments[place]) for place in changeable]
    changes = [f",{place},{now}" for place, then, now in zip(changeable, before, after, strict=True) if then != now]
    return f'["v",{value}{"".join(changes)}]'


def _attribute(handles: _Handles, operands: codec.Wire) -> str:
    value = getattr(*codec.decode(operands, handles.resolve))
    return f'["v",{handles.hand_out(value) if callable(value) else codec.encode(value)}]'


def _perform(handles: _Handles, operation: str, operands: codec.Wire, keywords: codec.Wire) -> str:
    try:
        if operation == "call":
            return _call(handles, operands, keywords)
        if operation == "getattr":
            return _attribute(handles, operands)
        return f'["v",{codec.encode(_OPERATIONS[operation](*codec.decode(operands, handles.resolve)))}]'
    except BaseException as error:
        return f'["x",{solution.failure(error)}]'


def serve(channel: int, module: types.ModuleType, first_handle: int) -> None:
    """Carry out operations until the other side has no more."""
    handles = _Handles(module, first_handle)
    while True:
        message = frames.read(channel)
        if message[0] == "stop":
            return
        _, operation, operands, keywords = message
        frames.write(channel, _perform(handles, operation, operands, keywords))
