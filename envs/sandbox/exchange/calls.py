"""Calls of sandboxed functions, runs of sandboxed main programs, and decoding of the messages that they send."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from .. import values
from ..results import CallOutcome, Failure, Report, Status
from ..runtime import codec, protocol
from ..runtime.codec import AS_BUILTIN, encode, is_extended
from ..settings import Limits
from ..values import MalformedValue
from ..workers.run import Ending
from ..workers.worker import Worker

_SCALARS: Final = (int, str, float, bool, type(None), bytes, complex)
_COLLECTIONS: Final = (list, tuple, set, frozenset)


class NeedsEncoding(TypeError):
    """Raised for a supported value, such as a deque, that must be serialized with `codec.encode`."""


def plain(value: Any) -> Any:
    """Convert a value to builtin types, recursively. Raise NeedsEncoding for a deque or date, TypeError for objects."""
    kind = type(value)
    if kind in _SCALARS:
        return value
    if kind in _COLLECTIONS:
        return kind([plain(item) for item in value])
    if kind is dict:
        return {plain(key): plain(item) for key, item in value.items()}
    if is_extended(value):
        raise NeedsEncoding(kind.__name__)
    for builtin, convert in AS_BUILTIN.items():
        if isinstance(value, builtin):
            return plain(convert(value))
    raise TypeError(
        f"a {kind.__name__} cannot be an argument in a sandbox; use numbers, strings, bytes, None, lists, tuples, "
        "sets, dicts, deques, counters, dates or times, or build the object in the code"
    )


Call = tuple[Sequence[Any], Mapping[str, Any]]
_DEATHS: tuple[Status, ...] = ("cpu_limit", "died")
TOTAL_WALL_FACTOR = 1.75  # limit of the wall-clock time of all processes of a solution, as a multiple of `wall_s`
_STATUS_OF_CAUSE: dict[int, Status] = {protocol.CPU_LIMIT: "cpu_limit", protocol.WALL_LIMIT: "wall_limit"}


@dataclass(frozen=True)
class Answers:
    """Result of a sandboxed run, whose untrusted values are not decoded yet."""

    status: Status
    results: tuple[codec.Wire | Failure, ...]
    failure: Failure | None
    stdout: str
    stderr: str
    cpu_s: float
    isolation: str
    num_left: int  # number of calls that were not made because an earlier call ended the process

    def followed_by(self, rest: Answers) -> Answers:
        """Return a copy with the results in `rest` appended, from another process that made the remaining calls."""
        made = self.results[: len(self.results) - self.num_left]
        return replace(
            self,
            results=(*made, *rest.results),
            stdout=self.stdout + rest.stdout,
            stderr=self.stderr + rest.stderr,
            cpu_s=self.cpu_s + rest.cpu_s,
            num_left=rest.num_left,
        )

    def report(self) -> Report:
        """Convert to a `Report` with decoded values. A call whose value cannot be decoded has a failure as outcome."""
        return Report(
            status=self.status,
            outcomes=tuple(_outcome(result) for result in self.results),
            failure=self.failure,
            stdout=self.stdout,
            stderr=self.stderr,
            cpu_s=self.cpu_s,
            isolation=self.isolation,
        )


def _outcome(result: codec.Wire | Failure) -> CallOutcome:
    if isinstance(result, Failure):
        return CallOutcome(failure=result)
    try:
        return CallOutcome(values.read(result))
    except MalformedValue as error:
        return CallOutcome(failure=Failure("MalformedValue", str(error)))


def read_failure(wire: Any) -> Failure:
    """Decode an exception that a sandboxed process sent. Raise MalformedValue if the data describe no exception."""
    if type(wire) is not list or len(wire) != 4:
        raise MalformedValue("a failure must have 4 parts")
    line = wire[2] if type(wire[2]) is int else None
    return Failure(values.read_text(wire[0])[:100], values.read_text(wire[1])[:500], line)


# Texts of failures can be part of agents' feedback. Do not reword them without increasing the environments' versions.
def ending_status(ending: Ending, *, sent_too_much: bool) -> tuple[Status, Failure | None]:
    """Return the status and the failure of a sandboxed process that has ended. Failure None: the status is `ok`."""
    if sent_too_much:
        return "output_limit", Failure("OutputLimit", "sent more than the limit on output")
    if ending.cause in _STATUS_OF_CAUSE:
        status = _STATUS_OF_CAUSE[ending.cause]
        clock = "of processor time" if status == "cpu_limit" else "on the clock"
        return status, Failure("TimeoutError", f"took longer than the limit {clock}")
    if not ending.is_orderly:
        return "died", Failure("Died", ending.description)
    return "ok", None


def request(mode: str, code: str, limits: Limits, seed: int, stdin: str = "") -> dict[str, Any]:
    """Return the message that starts a run, with the entries that all modes need."""
    stdout_length = limits.stdout_kb << 10
    return {"mode": mode, "code": code, "seed": seed, "stdin": stdin, "max_stdout_length": stdout_length}


def answer(worker: Worker, limits: Limits, message: dict[str, Any], num_results: int) -> Answers:
    """Run the request `message` in a new child process of the worker. Check and return the results that it sends."""
    with worker.start(limits) as run:
        run.send(message)
        ending, bodies, is_ragged = run.collect(num_results + 2)
    status, failure = ending_status(ending, sent_too_much=run.has_sent_too_much)
    results: list[codec.Wire | Failure] = []
    stdout, stderr, is_complete = "", "", False
    try:
        if len(bodies) > num_results + 1:
            raise MalformedValue("the process sent more messages than there are calls")
        if sum(map(values.num_parts, bodies)) > values.MAX_PARTS:
            raise values.TooLarge(f"sent values of more than {values.MAX_PARTS} parts")
        for body in bodies:
            kind, *parts = values.parse(body)
            if kind == "v" and len(parts) == 1 and len(results) < num_results:
                results.append(parts[0])
            elif kind == "x" and len(parts) == 1 and len(results) < num_results:
                results.append(read_failure(parts[0]))
            elif kind == "load" and len(parts) == 1 and not results and status == "ok":
                status, failure = "load_error", read_failure(parts[0])
            elif kind == "end" and len(parts) == 2 and not is_complete:
                stdout, stderr, is_complete = values.read_text(parts[0]), values.read_text(parts[1]), True
            else:
                raise MalformedValue("a message of this kind is not allowed here")
        if status == "ok" and (is_ragged or not is_complete or len(results) != num_results):
            raise MalformedValue("the process ended without all results")
    except values.TooLarge as error:
        if status in ("ok", "load_error"):
            status, failure = "output_limit", Failure("OutputLimit", str(error))
    except MalformedValue as error:
        if status in ("ok", "load_error"):
            status, failure = "malformed", Failure("Malformed", str(error))
    lost = failure if failure is not None else Failure("Malformed", "no answer")
    num_missing = num_results - len(results)
    results += [lost] * num_missing
    num_left = max(0, num_missing - 1)
    return Answers(status, tuple(results), failure, stdout, stderr, ending.cpu_s, worker.plan.isolation, num_left)


def plain_calls(calls: Sequence[Call]) -> list[tuple[Any, Any]]:
    """Convert the arguments of calls to builtin types. If one value raises NeedsEncoding, serialize all as lists."""
    try:
        return [(plain(tuple(arguments)), plain(dict(keywords))) for arguments, keywords in calls]
    except NeedsEncoding:
        wires = [(encode(tuple(arguments)), encode(dict(keywords))) for arguments, keywords in calls]
        return [(json.loads(arguments), json.loads(keywords)) for arguments, keywords in wires]


def call(worker: Worker, limits: Limits, code: str, function: str, calls: list[tuple[Any, Any]], seed: int) -> Answers:
    """Load the code in a sandboxed process and call its function once per set of arguments in `calls`.

    If a call ends the process, a new process makes the remaining calls, up to `max_deaths` processes. A process that
    exceeded its wall-clock limit is not replaced, because code that sleeps once is likely to sleep again.
    """
    deadline = time.monotonic() + TOTAL_WALL_FACTOR * limits.wall_s
    message = request("calls", code, limits, seed)
    message["function"] = function
    answers, num_lives = answer(worker, limits, {**message, "calls": calls}, len(calls)), 1
    while answers.status in _DEATHS and answers.num_left and num_lives < limits.max_deaths:
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            break
        rest = answer(worker, limits.within(left_s), {**message, "calls": calls[-answers.num_left :]}, answers.num_left)
        answers, num_lives = answers.followed_by(rest), num_lives + 1
    return answers


def run_program(worker: Worker, limits: Limits, code: str, stdin: str, seed: int) -> Answers:
    """Run the code as a sandboxed main program. The answers have one result: None, or the failure of the program."""
    return answer(worker, limits, request("program", code, limits, seed, stdin), 1)
