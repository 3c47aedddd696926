"""Child process: read the request, run the code, send values."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

from . import frames, objects, solution
from .codec import decode, encode


def _answer_calls(channel: int, request: dict[str, Any]) -> None:
    try:
        module = solution.load(request["code"], "solution")
        function = getattr(module, request["function"])
    except BaseException as error:
        frames.write(channel, f'["load",{solution.failure(error)}]')
        return
    for arguments, keywords in request["calls"]:
        try:
            if type(arguments) is list:  # in wire form, which only some types need
                arguments, keywords = decode(arguments), decode(keywords)
            result = f'["v",{encode(function(*arguments, **keywords))}]'
        except BaseException as error:
            result = f'["x",{solution.failure(error)}]'
        frames.write(channel, result)  # immediately, because results before a crash count


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
    objects.serve(channel, module, request["first_handle"])


_SILENT_END = '["end","",""]'
Mode = Callable[[int, dict[str, Any]], None]
MODES: dict[str, Mode] = {"calls": _answer_calls, "program": _run_program, "objects": _offer_objects}


def answer(source: int, channel: int, streams: solution.Streams) -> None:
    """Read the request of this process from `source`, and write the messages to `channel`."""
    gc.enable()
    request = frames.read(source)
    if request["seed"]:
        solution.seed_generators(request["seed"])  # the zygote's seed is 0
    if request["stdin"]:
        solution.feed(request["stdin"])
    MODES[request["mode"]](channel, request)
    frames.write(channel, f'["end",{streams.texts(request["max_stdout_length"])}]' if streams.are_used else _SILENT_END)
