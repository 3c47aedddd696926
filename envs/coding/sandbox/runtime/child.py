"""What one run does, once confined: read the request, run the code, answer with values."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

from . import codec, frames, objects, solution


def _call(function: Any, arguments: codec.Wire, keywords: codec.Wire) -> list[Any]:
    try:
        return ["v", codec.encode(function(*codec.decode(arguments), **codec.decode(keywords)))]
    except BaseException as error:
        return ["x", solution.failure(error)]


def _answer_calls(channel: int, request: dict[str, Any], streams: solution.Streams) -> None:
    try:
        module = solution.load(request["code"], "solution", request["seed"])
        function = getattr(module, request["function"])
    except BaseException as error:
        frames.write(channel, ["load", solution.failure(error)])
        return
    for arguments, keywords in request["calls"]:
        frames.write(channel, _call(function, arguments, keywords))


def _run_program(channel: int, request: dict[str, Any], streams: solution.Streams) -> None:
    try:
        solution.load(request["code"], "__main__", request["seed"])
        frames.write(channel, ["v", None])
    except SystemExit as leaving:
        quiet = leaving.code is None or leaving.code == 0
        frames.write(channel, ["v", None] if quiet else ["x", solution.failure(leaving)])
    except BaseException as error:
        frames.write(channel, ["x", solution.failure(error)])


def _offer_objects(channel: int, request: dict[str, Any], streams: solution.Streams) -> None:
    try:
        module = solution.load(request["code"], "solution", request["seed"])
    except BaseException as error:
        frames.write(channel, ["load", solution.failure(error)])
        return
    frames.write(channel, ["ready"])
    objects.serve(channel, module, request["first_handle"])


Mode = Callable[[int, dict[str, Any], solution.Streams], None]
MODES: dict[str, Mode] = {"calls": _answer_calls, "program": _run_program, "objects": _offer_objects}


def run(channel: int) -> None:
    """Serve the one request of this process."""
    gc.enable()
    request = frames.read(channel)
    streams = solution.Streams(request["stdin"])
    MODES[request["mode"]](channel, request, streams)
    frames.write(channel, ["end", *streams.texts(request["max_stdout_bytes"])])
