"""Runs trusted tests in a jail of their own; the code under test is elsewhere and answers by value.

The expected answers are here, the solution is not: `candidate` and every other name under test is a stand-in that sends
its calls out. What comes back is plain data, or a handle on an object that stays in the solver's jail. Comparisons with
plain data are never left to such an object.
"""

from __future__ import annotations

import builtins
import io
import json
import sys
import types
import unittest
from collections.abc import Iterator
from typing import Any

from . import assertions, frames, solution
from .stand_in import CLASS, FUNCTION, Exchange, StandIn


def _tell(channel: int, *message: Any) -> None:
    frames.write(channel, json.dumps(message))


class _Report(unittest.TestResult):
    """Sends the outcome of each test method as it ends; a method passes if nothing spoke against it."""

    def __init__(self, channel: int, numbers: dict[str, int]) -> None:
        super().__init__()
        self._channel = channel
        self._numbers = numbers
        self._complaint: str | None = None

    def startTest(self, test: unittest.TestCase) -> None:
        super().startTest(test)
        self._complaint = None

    def _complain(self, error: Any) -> None:
        if self._complaint is None:
            self._complaint = solution.summary(error[1])

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:
        self._complain(err)

    def addError(self, test: unittest.TestCase, err: Any) -> None:
        self._complain(err)

    def addSubTest(self, test: unittest.TestCase, subtest: unittest.TestCase, err: Any) -> None:
        if err is not None:
            self._complain(err)

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        self._complaint = f"skipped: {reason}"

    def addUnexpectedSuccess(self, test: unittest.TestCase) -> None:
        self._complaint = "succeeded where a failure was expected"

    def stopTest(self, test: unittest.TestCase) -> None:
        super().stopTest(test)
        number = self._numbers.get(_name(test))
        if number is not None:
            _tell(self._channel, "result", number, self._complaint is None, self._complaint or "")


def _name(test: unittest.TestCase) -> str:
    return f"{type(test).__name__}.{test._testMethodName}"


def _test_cases(module: types.ModuleType) -> list[unittest.TestSuite]:
    found = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, unittest.TestCase) and value.__module__ == module.__name__
    ]
    return [unittest.defaultTestLoader.loadTestsFromTestCase(case) for case in found]


def _leaves(suites: list[unittest.TestSuite]) -> Iterator[unittest.TestCase]:
    for suite in suites:
        for test in suite:
            if isinstance(test, unittest.TestCase):
                yield test


def _module(request: dict[str, Any], exchange: Exchange) -> types.ModuleType:
    module = types.ModuleType("tests")
    module.__dict__["__builtins__"] = builtins
    sys.modules["tests"] = module
    exec(compile(request["support"], "<support>", "exec", dont_inherit=True), module.__dict__)
    kinds = {name: FUNCTION for name in request["functions"]} | {name: CLASS for name in request["classes"]}
    stand_ins = {name: StandIn(exchange, ["g", name], kind) for name, kind in kinds.items()}
    module.__dict__.update(stand_ins, candidate=stand_ins[request["candidate"]])
    return module


def run(channel: int, request: dict[str, Any]) -> None:
    """Send the plan of the tests, the outcome of each, and how the whole ended."""
    exchange = Exchange(channel)
    unittest.main = lambda *_, **__: None  # type: ignore[assignment]  # test files that end with it are imported here
    try:
        plan = assertions.Plan(request["tests"], "<tests>")
        module = _module(request, exchange)
        recorder = assertions.Recorder(plan, module.__dict__)
    except BaseException as error:
        frames.write(channel, f'["broken",{solution.failure(error)}]')
        return
    sys.stdin, sys.stdout, sys.stderr = io.StringIO(), io.StringIO(), io.StringIO()
    ending = "null"
    try:
        exec(plan.code, module.__dict__)
        if plan.has_check and not plan.calls_check:
            module.__dict__["check"](module.__dict__["candidate"])
    except BaseException as error:
        ending = solution.failure(error)
    suites = _test_cases(module)
    names = [_name(test) for test in _leaves(suites)]
    first = len(plan.assertions)
    _tell(channel, "plan", [*plan.assertions, *[[name, None] for name in names]])
    for number, (passed, message) in enumerate(recorder.outcomes(finished=ending == "null")):
        _tell(channel, "result", number, passed, message)
    report = _Report(channel, {name: first + i for i, name in enumerate(names)})
    for suite in suites:
        suite.run(report)
    frames.write(channel, f'["done",{ending}]')
