"""Function calls and whole programs in one run, and what their answers mean."""

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
    """A value that a sandbox takes, but not as it is."""


def plain(value: Any) -> Any:
    """The value itself, or a copy if a part of it is a subclass of a builtin type.

    Raises:
        NeedsEncoding: if a part of it is of an extended type, such as a deque.
        TypeError: if a part of it is of none of the types that travel.
    """
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
        f"a {kind.__name__} cannot be an argument in a sandbox: only numbers, strings, bytes, None, lists, tuples, "
        "sets, dicts, deques, counters, dates and times of them; convert it, or build it in the code"
    )


def encoded(value: Any) -> Any:
    """The value in wire form.

    Raises:
        TypeError: if a part of it is of none of the types that travel.
    """
    return json.loads(encode(value))


Call = tuple[Sequence[Any], Mapping[str, Any]]
_DEATHS: tuple[Status, ...] = ("cpu_limit", "died")
LIVES_CLOCK = 1.75
"""All lives of a solution together may take so many times the limit on the clock."""
_STATUS_OF_CAUSE: dict[int, Status] = {protocol.CPU_LIMIT: "cpu_limit", protocol.WALL_LIMIT: "wall_limit"}


@dataclass(frozen=True)
class Answers:
    """A run as it came back: values are still in wire form, and not trusted."""

    status: Status
    results: tuple[codec.Wire | Failure, ...]
    failure: Failure | None
    stdout: str
    stderr: str
    cpu_s: float
    isolation: str
    num_left: int
    """How many calls after the one that it died of were not made."""

    def followed_by(self, rest: Answers) -> Answers:
        """These answers, with those of another life in place of the calls that were not made."""
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
        """The same with values; one that cannot be read is a failure of its call."""
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
    """A failure as the child described it.

    Raises:
        MalformedValue: if the description is none.
    """
    if type(wire) is not list or len(wire) != 4:
        raise MalformedValue("not a failure")
    line = wire[2] if type(wire[2]) is int else None
    return Failure(values.read_text(wire[0])[:100], values.read_text(wire[1])[:500], line)


def ending_status(ending: Ending, *, sent_too_much: bool) -> tuple[Status, Failure | None]:
    """Status that the end of the child alone implies; `ok` if it ended in order."""
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
    """The part of a request that every mode has."""
    return {
        "mode": mode,
        "code": code,
        "seed": seed,
        "stdin": stdin,
        "max_stdout_length": limits.stdout_kb << 10,
    }


def answer(worker: Worker, limits: Limits, message: dict[str, Any], num_results: int) -> Answers:
    """Start a child, let it answer, and sort out what it said.

    Raises:
        Broken: if the executor failed.
    """
    with worker.start(limits) as run:
        run.send(message)
        ending, bodies, is_ragged = run.collect(num_results + 2)
    status, failure = ending_status(ending, sent_too_much=run.has_sent_too_much)
    results: list[codec.Wire | Failure] = []
    stdout, stderr, is_complete = "", "", False
    try:
        if len(bodies) > num_results + 1:
            raise MalformedValue("more messages than answers and an end")
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
                raise MalformedValue("a message out of place")
        if status == "ok" and (is_ragged or not is_complete or len(results) != num_results):
            raise MalformedValue("it left without having answered")
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
    """Calls as they travel: all of them as plain data, or all in wire form, which the child tells by their type.

    Raises:
        TypeError: if an argument is not plain data.
    """
    try:
        return [(plain(tuple(arguments)), plain(dict(keywords))) for arguments, keywords in calls]
    except NeedsEncoding:
        return [(encoded(tuple(arguments)), encoded(dict(keywords))) for arguments, keywords in calls]


def call(worker: Worker, limits: Limits, code: str, function: str, calls: list[tuple[Any, Any]], seed: int) -> Answers:
    """Load the code and call a function of it, once for each set of arguments, in one process.

    The call that a process dies of fails; a new process makes the rest as long as the limits allow another life. All
    lives share a clock, and one that ran into it is the last: what sleeps once sleeps again.
    """
    deadline = time.monotonic() + LIVES_CLOCK * limits.wall_s
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
    """Run the code as a main program; its one result is None, or how it failed."""
    return answer(worker, limits, request("program", code, limits, seed, stdin), 1)
