"""What one run does, once confined: read the request, run the code, answer with values."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

from . import frames, objects, solution
from .codec import encode


def _answer_calls(channel: int, request: dict[str, Any]) -> None:
    try:
        module = solution.load(request["code"], "solution", request["seed"])
        function = getattr(module, request["function"])
    except BaseException as error:
        frames.write(channel, f'["load",{solution.failure(error)}]')
        return
    for arguments, keywords in request["calls"]:
        try:
            answer = f'["v",{encode(function(*arguments, **keywords))}]'
        except BaseException as error:
            answer = f'["x",{solution.failure(error)}]'
        frames.write(channel, answer)  # one by one: what is answered before a death counts


def _run_program(channel: int, request: dict[str, Any]) -> None:
    answer = '["v",null]'
    try:
        solution.load(request["code"], "__main__", request["seed"])
    except SystemExit as leaving:
        if leaving.code is not None and leaving.code != 0:
            answer = f'["x",{solution.failure(leaving)}]'
    except BaseException as error:
        answer = f'["x",{solution.failure(error)}]'
    frames.write(channel, answer)


def _offer_objects(channel: int, request: dict[str, Any]) -> None:
    try:
        module = solution.load(request["code"], "solution", request["seed"])
    except BaseException as error:
        frames.write(channel, f'["load",{solution.failure(error)}]')
        return
    frames.write(channel, '["ready"]')
    objects.serve(channel, module, request["first_handle"])


Mode = Callable[[int, dict[str, Any]], None]
MODES: dict[str, Mode] = {"calls": _answer_calls, "program": _run_program, "objects": _offer_objects}


def run(channel: int, streams: solution.Streams) -> None:
    """Serve the one request of this process."""
    gc.enable()
    request = frames.read(channel)
    streams.attach(request["stdin"])
    MODES[request["mode"]](channel, request)
    frames.write(channel, f'["end",{streams.texts(request["max_stdout_bytes"])}]')
