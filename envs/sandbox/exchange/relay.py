"""Relay between two jails (isolated processes): the judge runs the tests, and the solver runs the code under test.

The solver receives the code and the arguments of calls. Only the judge receives expected values.
"""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass, replace
from typing import Any

from .. import values
from ..results import Failure, Status, TestOutcome, TestReport
from ..settings import Limits
from ..values import MalformedValue
from ..workers.run import ChildRun, Closed, Flooded
from ..workers.worker import Worker
from .calls import TOTAL_WALL_FACTOR, ending_status, read_failure, request

_HANDLES_PER_PROCESS = 1 << 32
_EXIT_PATIENCE_S = 1.0  # time limit from the last message of a process to its exit
_JUDGE_WALL_FACTOR = 2.0  # above TOTAL_WALL_FACTOR, because the judge waits for all processes of the solution
_OUTPUTS_PER_RUN = 16  # maximum size of all messages of the code under test, as a multiple of `output_kb`
_JUDGE_OUTPUT_KB = 32 << 10  # large, because the judge sends the arguments of all calls
_REMOTE_RESULTS = {"make": "h", "call": "ky", "getattr": "hky", "getitem": "ky", "next": "ky"}
"""Tags of the object handles that an operation may return. h: instance, k: callable, y: iterator."""


@dataclass(frozen=True)
class Tests:
    """Tests of a program, given as arguments of `Sandbox.run_tests`."""

    source: str
    candidate: str  # name of the function or class that is passed to `check`
    functions: tuple[str, ...]
    classes: tuple[str, ...]
    support: str


def _is_handle(wire: Any, tags: str) -> bool:
    return type(wire) is list and len(wire) == 2 and wire[0] in tuple(tags) and type(wire[1]) is int


def _check_value(wire: Any, operation: str) -> None:
    if _is_handle(wire, _REMOTE_RESULTS.get(operation, "")):
        return
    if operation == "make":
        raise MalformedValue("the reply to `make` must be an instance")
    if type(wire) is list and len(wire) == 4 and wire[0] == "m" and operation in _REMOTE_RESULTS:
        groups, spans, names = map(values.read, wire[1:])
        are_spans = all(type(span) is tuple and len(span) == 2 for span in spans)
        if type(groups) is tuple and type(spans) is tuple and type(names) is dict and are_spans:
            return
        raise MalformedValue("a match must have groups, spans and names")
    values.check(wire)


def _check_reply(reply: list[Any], operation: str, operands: list[Any]) -> None:
    """Raise MalformedValue if the code under test sent a reply that this operation on its objects cannot have."""
    kind, *parts = reply
    if kind == "x" and len(parts) == 1:
        read_failure(parts[0])
        if type(parts[0][3]) is not list or any(type(base) is not str for base in parts[0][3]):
            raise MalformedValue("the bases of a failure must be a list of names")
    elif kind == "back" and len(parts) == 3 and type(parts[0]) is int and parts[0] >= 0:
        for wire, tag in zip(parts[1:], "ld", strict=True):
            values.check(wire)
            if type(wire) is not list or wire[0] != tag:
                raise MalformedValue("a call of the tests needs a list and a dict of arguments")
    elif kind == "over" and operation == "next" and len(parts) == 1:
        values.check(parts[0])
    elif kind == "c" and len(parts) == 2 and type(parts[0]) is int and operation in ("getattr", "getitem"):
        values.check(parts[1])
    elif kind == "v" and len(parts) % 2 and (operation == "call" or len(parts) == 1):
        _check_value(parts[0], operation)
        for place, after in zip(parts[1::2], parts[2::2], strict=True):
            if type(place) is not int or not 0 <= place < len(operands) - 2 or type(operands[2 + place]) is not list:
                raise MalformedValue("the reply changes an argument that the call does not have")
            values.check(after)
    else:
        raise MalformedValue("the reply does not fit the operation")


class _Solver:
    """Process with the code under test. If the process dies, a new process starts, up to `max_deaths` processes."""

    def __init__(self, worker: Worker, limits: Limits, code: str, seed: int) -> None:
        self._worker = worker
        self._limits = limits
        self._deadline = time.monotonic() + TOTAL_WALL_FACTOR * limits.wall_s
        self._request = request("objects", code, limits, seed)
        self._num_starts = 0
        self._bytes_left = _OUTPUTS_PER_RUN * (limits.output_kb << 10)
        self._pending: list[tuple[str, list[Any]]] = []  # operations without a reply; nested ones are last
        self._run: ChildRun | None = None
        self.status: Status = "ok"
        self.failure: Failure | None = None
        self.cpu_s = 0.0
        self._start()

    def __enter__(self) -> _Solver:
        return self

    def __exit__(self, *error: object) -> None:
        if self._run is not None:
            self._run.close()

    def _may_restart(self) -> bool:
        return (
            self._num_starts < self._limits.max_deaths
            and self.status not in ("load_error", "wall_limit")
            and time.monotonic() < self._deadline
        )

    def _start(self) -> None:
        self._run = self._worker.start(self._limits.within(self._deadline - time.monotonic()))
        self._run.send({**self._request, "first_handle": self._num_starts * _HANDLES_PER_PROCESS})
        self._num_starts += 1
        try:
            kind, *parts = self._run.receive()
            if kind == "load" and len(parts) == 1:
                self._end("load_error", read_failure(parts[0]), patience_s=_EXIT_PATIENCE_S)
            elif kind != "ready":
                raise MalformedValue("the first message must be `ready` or `load`")
        except (Closed, Flooded, MalformedValue) as error:
            self._die(error)

    def _die(self, error: Exception) -> None:
        if isinstance(error, Flooded | values.TooLarge):
            self._end("output_limit", Failure("OutputLimit", str(error) or "sent more than the limit on output"))
        elif isinstance(error, MalformedValue):
            self._end("malformed", Failure("Malformed", str(error)))
        else:
            self._end("died", Failure("Died", "closed its channel"), patience_s=_EXIT_PATIENCE_S)

    def _end(self, status: Status, failure: Failure, *, patience_s: float = 0.0) -> None:
        """End the process and store its status. If a limit or crash has ended the process before, store that status."""
        assert self._run is not None
        with self._run as run:
            ending = run.finish(patience_s=patience_s)
        self._run = None
        self.cpu_s += ending.cpu_s
        implied, reason = ending_status(ending, sent_too_much=False)
        if reason is not None and status != "load_error" and not ending.was_stopped:
            status, failure = implied, reason
        if self.status == "ok" or status == "wall_limit":
            self.status, self.failure = status, failure

    def perform(self, message: list[Any]) -> list[Any]:
        """Forward a message of the tests to the process. Return the reply, or `gone` if the process has ended."""
        if message[0] == "do":
            if self._run is None and self._may_restart():
                self._start()
            self._pending.append((str(message[1]), message[2] if type(message[2]) is list else []))
        if self._run is None or not self._pending:
            self._pending.clear()
            return ["gone", str(self.failure)]
        try:
            self._run.send(message)
            reply = self._run.receive()
            _check_reply(reply, *self._pending[-1])
            self._bytes_left -= self._run.last_length
            if self._bytes_left < 0:
                raise Flooded
        except (Closed, Flooded, MalformedValue) as error:
            self._pending.clear()
            self._die(error)
            return ["gone", str(self.failure)]
        if reply[0] != "back":
            self._pending.pop()
        return reply

    def stop(self) -> None:
        """Ask the process with the code under test to exit, and wait until it has ended."""
        if self._run is None:
            return
        with self._run as run:
            run.send(["stop"])
            ending = run.finish()
        self._run = None
        self.cpu_s += ending.cpu_s
        if self.status == "ok":
            self.status, self.failure = ending_status(ending, sent_too_much=False)


class _Judge:
    """Collector of the test results that the process with the tests sends."""

    def __init__(self) -> None:
        self._plan: list[tuple[str, int | None]] = []
        self._outcomes: dict[int, tuple[bool, str]] = {}
        self.is_done = False
        self.failure: Failure | None = None
        self.broken: Failure | None = None

    def note(self, message: list[Any]) -> None:
        kind, *parts = message
        if kind == "plan":
            self._plan = [(values.read_text(name), line if type(line) is int else None) for name, line in parts[0]]
        elif kind == "result":
            number, passed, text = parts
            if type(number) is not int or not 0 <= number < len(self._plan):
                raise MalformedValue("the tests sent a result for a test that is not in their plan")
            self._outcomes[number] = (passed is True, values.read_text(text))
        elif kind == "broken":
            self.broken = read_failure(parts[0])
        elif kind == "done":
            self.is_done = True
            self.failure = None if parts[0] is None else read_failure(parts[0])
        else:
            raise MalformedValue(f"the tests sent a message of the unknown kind {kind!r}")

    def tests(self) -> tuple[TestOutcome, ...]:
        outcomes = [self._outcomes.get(number, (False, "not reached")) for number in range(len(self._plan))]
        return tuple(
            TestOutcome(name, passed, message, line)
            for (name, line), (passed, message) in zip(self._plan, outcomes, strict=True)
        )


def _converse(run: ChildRun, judge: _Judge, solver: _Solver) -> None:
    while True:
        message = run.receive()
        if (message[0] == "do" and len(message) == 4) or (message[0] in ("return", "raise") and len(message) == 2):
            run.send(solver.perform(message))
        elif message[0] == "end":
            return
        else:
            judge.note(message)


def _seed_of(side: str, seed: int, tests: Tests) -> int:
    """Derive the seed of the tests or the code (`side`) from the test source, so that the code cannot predict it."""
    text = f"{side}\0{seed}\0{tests.source}\0{tests.support}"
    return int.from_bytes(hashlib.sha256(text.encode("utf-8", "replace")).digest()[:16], "big") | 1


def run_tests(solvers: Worker, judges: Worker, limits: Limits, code: str, tests: Tests, seed: int) -> TestReport:
    """Run the tests and the code under test in separate jails (isolated processes), and return the test results."""
    judge_limits = replace(  # the judge also waits for the solver and decodes its results
        limits,
        cpu_s=2 * limits.cpu_s,
        wall_s=_JUDGE_WALL_FACTOR * limits.wall_s,
        output_kb=max(limits.output_kb, _JUDGE_OUTPUT_KB),
    )
    message = request("judge", "", limits, _seed_of("tests", seed, tests)) | vars(tests)
    judge, is_over = _Judge(), False
    with judges.start(judge_limits) as run, _Solver(solvers, limits, code, _seed_of("solution", seed, tests)) as solver:
        run.send(message)
        try:
            _converse(run, judge, solver)
            is_over = True
        except (Closed, Flooded, ValueError, TypeError, LookupError):  # tests can also be malicious
            judge.is_done = False
        solver.stop()
        ending = run.finish(patience_s=None if is_over else _EXIT_PATIENCE_S)
    if judge.broken is None and not judge.is_done:
        _, reason = ending_status(ending, sent_too_much=False)
        judge.broken = Failure("TestsDied", "" if reason is None else f"in the tests: {reason}")
    return TestReport(
        status=solver.status,
        tests=judge.tests(),
        failure=solver.failure or judge.failure,
        test_failure=judge.broken,
        cpu_s=solver.cpu_s,
        isolation=solvers.plan.isolation,
    )
