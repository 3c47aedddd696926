"""Tests in one jail, the code under test in another: what passes between them goes through here, as values.

The solver's jail holds the code and the arguments of the calls so far. The expected answers are only in the judge's
jail, where no code under test runs, so there is nothing to find and nobody to persuade.
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
from .calls import LIVES_CLOCK, ending_status, read_failure, request

_HANDLES_PER_LIFE = 1 << 32
_EXIT_PATIENCE_S = 1.0  # between a process's last word and its end
_TESTS_CLOCK = 2.0  # times the limit on the solution's: the tests must outlive all its lives
_OUTPUTS_PER_RUN = 16
"""How many times the limit on one message all of a solution's may hold: each costs the trusted side as well."""
_JUDGE_OUTPUT_KB = 32 << 10  # what tests pass in is no fault of the solution's
_REMOTE_RESULTS = {"make": "h", "call": "ky", "getattr": "hky", "getitem": "ky", "next": "ky"}
"""Which handles may come back from which operation: an instance, something to call, something with a next item."""


@dataclass(frozen=True)
class Tests:
    """A test source and what it is about."""

    source: str
    """Assertions at module level, a function `check(candidate)`, or unittest classes."""
    candidate: str
    """The name that `check` is given."""
    functions: tuple[str, ...]
    """Names in the code under test that the tests may call; they return plain data."""
    classes: tuple[str, ...]
    """Classes in the code under test that the tests may instantiate."""
    support: str
    """Trusted source to run before the tests, in their jail: what else they refer to."""


def _is_handle(wire: Any, tags: str) -> bool:
    return type(wire) is list and len(wire) == 2 and wire[0] in tuple(tags) and type(wire[1]) is int


def _check_value(wire: Any, operation: str) -> None:
    if _is_handle(wire, _REMOTE_RESULTS.get(operation, "")):
        return
    if operation == "make":
        raise MalformedValue("no instance")
    if type(wire) is list and len(wire) == 4 and wire[0] == "m" and operation in _REMOTE_RESULTS:
        groups, spans, names = map(values.read, wire[1:])
        are_spans = all(type(span) is tuple and len(span) == 2 for span in spans)
        if type(groups) is tuple and type(spans) is tuple and type(names) is dict and are_spans:
            return
        raise MalformedValue("not a match")
    values.check(wire)


def _check_reply(reply: list[Any], operation: str, operands: list[Any]) -> None:
    """Refuse a reply that the judge should not have to read.

    Raises:
        MalformedValue: if it is none, or holds a handle where none may be.
    """
    kind, *parts = reply
    if kind == "x" and len(parts) == 1:
        read_failure(parts[0])
        if type(parts[0][3]) is not list or any(type(base) is not str for base in parts[0][3]):
            raise MalformedValue("not a failure")
    elif kind == "back" and len(parts) == 3 and type(parts[0]) is int and parts[0] >= 0:
        for wire, tag in zip(parts[1:], "ld", strict=True):
            values.check(wire)
            if type(wire) is not list or wire[0] != tag:
                raise MalformedValue("no arguments")
    elif kind == "over" and operation == "next" and len(parts) == 1:
        values.check(parts[0])
    elif kind == "c" and len(parts) == 2 and type(parts[0]) is int and operation in ("getattr", "getitem"):
        values.check(parts[1])
    elif kind == "v" and len(parts) % 2 and (operation == "call" or len(parts) == 1):
        _check_value(parts[0], operation)
        for place, after in zip(parts[1::2], parts[2::2], strict=True):
            if type(place) is not int or not 0 <= place < len(operands) - 2 or type(operands[2 + place]) is not list:
                raise MalformedValue("not a place")
            values.check(after)
    else:
        raise MalformedValue("not a reply")


class _Solver:
    """The code under test, started anew after a death as often and as long as the limits allow."""

    def __init__(self, worker: Worker, limits: Limits, code: str, seed: int) -> None:
        self._worker = worker
        self._limits = limits
        self._deadline = time.monotonic() + LIVES_CLOCK * limits.wall_s
        self._request = request("objects", code, limits, seed)
        self._num_lives = 0
        self._bytes_left = _OUTPUTS_PER_RUN * (limits.output_kb << 10)
        self._pending: list[tuple[str, list[Any]]] = []  # operations whose replies are due, the innermost last
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

    def _may_live_again(self) -> bool:
        return (
            self._num_lives < self._limits.max_deaths
            and self.status not in ("load_error", "wall_limit")
            and time.monotonic() < self._deadline
        )

    def _start(self) -> None:
        self._run = self._worker.start(self._limits.within(self._deadline - time.monotonic()))
        self._run.send({**self._request, "first_handle": self._num_lives * _HANDLES_PER_LIFE})
        self._num_lives += 1
        try:
            kind, *parts = self._run.receive()
            if kind == "load" and len(parts) == 1:
                self._end("load_error", read_failure(parts[0]), patience_s=_EXIT_PATIENCE_S)
            elif kind != "ready":
                raise MalformedValue("neither ready nor failed")
        except (Closed, Flooded, MalformedValue) as error:
            self._die(error)

    def _die(self, error: Exception) -> None:
        if isinstance(error, values.TooLarge):
            self._end("output_limit", Failure("OutputLimit", str(error)))
        elif isinstance(error, MalformedValue):
            self._end("malformed", Failure("Malformed", str(error)))
        elif isinstance(error, Flooded):
            self._end("output_limit", Failure("OutputLimit", "sent more than the limit on output"))
        else:
            self._end("died", Failure("Died", "closed its channel"), patience_s=_EXIT_PATIENCE_S)

    def _end(self, status: Status, failure: Failure, *, patience_s: float = 0.0) -> None:
        """Close this life; how the process ended says more than what the conversation looked like."""
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
        """Reply to a message of the tests; `gone` if nobody is left to take it."""
        if message[0] == "do":
            if self._run is None and self._may_live_again():
                self._start()
            self._pending.append((str(message[1]), message[2] if type(message[2]) is list else []))
        if self._run is None or not self._pending:
            self._pending.clear()
            return ["gone", str(self.failure)]
        try:
            self._run.send(message)
            reply = self._run.receive()
            _check_reply(reply, *self._pending[-1])
            self._count(self._run.last_length)
        except (Closed, Flooded, MalformedValue) as error:
            self._pending.clear()
            self._die(error)
            return ["gone", str(self.failure)]
        if reply[0] != "back":
            self._pending.pop()
        return reply

    def _count(self, num_bytes: int) -> None:
        self._bytes_left -= num_bytes
        if self._bytes_left < 0:
            raise Flooded

    def stop(self) -> None:
        """Ask for an orderly end."""
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
    """What the tests reported so far."""

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
                raise MalformedValue("the outcome of a test that is not in the plan")
            self._outcomes[number] = (passed is True, values.read_text(text))
        elif kind == "broken":
            self.broken = read_failure(parts[0])
        elif kind == "done":
            self.is_done = True
            self.failure = None if parts[0] is None else read_failure(parts[0])
        else:
            raise MalformedValue(f"a judge does not say {kind!r}")

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
    """What a side draws from. Neither can tell the other's: the tests' text, which one of them lacks, is part of it."""
    text = f"{side}\0{seed}\0{tests.source}\0{tests.support}"
    return int.from_bytes(hashlib.sha256(text.encode("utf-8", "replace")).digest()[:16], "big") | 1


def run_tests(solvers: Worker, judges: Worker, limits: Limits, code: str, tests: Tests, seed: int) -> TestReport:
    """Run the tests against the code, each in its own jail.

    Raises:
        Broken: if the executor failed.
    """
    judge_limits = replace(  # the judge also waits for the solver, and reads what it returns
        limits,
        cpu_s=2 * limits.cpu_s,
        wall_s=_TESTS_CLOCK * limits.wall_s,
        output_kb=max(limits.output_kb, _JUDGE_OUTPUT_KB),
    )
    message = request("judge", "", limits, _seed_of("tests", seed, tests))
    message |= {
        "tests": tests.source,
        "support": tests.support,
        "candidate": tests.candidate,
        "functions": tests.functions,
        "classes": tests.classes,
    }
    judge, is_over = _Judge(), False
    solvers_seed = _seed_of("solution", seed, tests)
    with judges.start(judge_limits) as run, _Solver(solvers, limits, code, solvers_seed) as solver:
        run.send(message)
        try:
            _converse(run, judge, solver)
            is_over = True
        except (Closed, Flooded, ValueError, TypeError, LookupError):  # tests may be hostile as well
            judge.is_done = False
        solver.stop()
        ending = run.finish(patience_s=None if is_over else _EXIT_PATIENCE_S)
    if judge.broken is None and not judge.is_done:
        _, reason = ending_status(ending, sent_too_much=False)
        judge.broken = Failure("TestsDied", "" if reason is None else f"the tests themselves: {reason}")
    return TestReport(
        status=solver.status,
        tests=judge.tests(),
        failure=solver.failure or judge.failure,
        test_failure=judge.broken,
        cpu_s=solver.cpu_s,
        isolation=solvers.plan.isolation,
    )
