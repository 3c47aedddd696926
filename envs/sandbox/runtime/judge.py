"""Runs trusted tests in a jail of their own; the code under test is elsewhere and answers by value.

The expected answers are here, the solution is not: `candidate` and every other name under test is a stand-in that sends
its calls out. What comes back is plain data, or a handle on an object that stays in the solver's jail. Comparisons with
plain data are never left to such an object.
"""

from __future__ import annotations

import builtins
import functools
import io
import json
import sys
import time
import types
import unittest
from collections.abc import Callable, Iterator
from typing import Any

from . import assertions, frames, solution
from .stand_in import Class, Exchange, Function

_A_DAY_S = 86400.0


def _tell(channel: int, *message: Any) -> None:
    frames.write(channel, json.dumps(message))


class _Report(unittest.TestResult):
    """Sends the outcome of each test method as it ends.

    A method passes if nothing spoke against it, and if something could have: an assertion that ran.
    """

    def __init__(self, channel: int, numbers: dict[str, int], recorder: assertions.Recorder) -> None:
        super().__init__()
        self._channel = channel
        self._numbers = numbers
        self._recorder = recorder
        self._complaint: str | None = None

    def startTest(self, test: unittest.TestCase) -> None:
        super().startTest(test)
        self._complaint = None
        self._recorder.begin()

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

    def addExpectedFailure(self, test: unittest.TestCase, err: Any) -> None:
        self._recorder.count()

    def addUnexpectedSuccess(self, test: unittest.TestCase) -> None:
        self._complaint = "succeeded where a failure was expected"

    def stopTest(self, test: unittest.TestCase) -> None:
        super().stopTest(test)
        number = self._numbers.get(_name(test))
        if self._complaint is None:
            self._complaint = self._recorder.complaint()
        if number is not None:
            _tell(self._channel, "result", number, self._complaint is None, self._complaint or "")


def _count_assertions(recorder: assertions.Recorder) -> None:
    """Let every assertion method of unittest be heard of."""

    def counting(method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def call(*arguments: Any, **keywords: Any) -> Any:
            recorder.count()
            return method(*arguments, **keywords)

        return call

    for name, method in list(vars(unittest.TestCase).items()):
        if name.startswith(("assert", "fail")) and isinstance(method, types.FunctionType):
            setattr(unittest.TestCase, name, counting(method))


def _keep_the_time_secret(salt: int) -> None:
    """Seed by more than the time where tests seed by the time: the code under test has a clock as well.

    Another seed is taken as it is: tests may hold answers to what it draws.
    """

    def salted(seed: Callable[..., Any], place: int) -> Callable[..., Any]:
        @functools.wraps(seed)
        def call(*arguments: Any, **keywords: Any) -> Any:
            given = list(arguments)
            if len(given) > place and isinstance(given[place], int | float) and _is_the_time(given[place]):
                given[place] = (int(given[place]) ^ salt) % (1 << 32)
            return seed(*given, **keywords)

        return call

    if "random" in sys.modules:
        random: Any = sys.modules["random"]
        random.Random.seed = salted(random.Random.seed, 1)
        random.seed = random._inst.seed
    if "numpy.random" in sys.modules:
        numpy: Any = sys.modules["numpy.random"]
        numpy.seed, numpy.default_rng = salted(numpy.seed, 0), salted(numpy.default_rng, 0)


def _is_the_time(seed: float) -> bool:
    now = time.time()
    return any(abs(seed / unit - now) < _A_DAY_S for unit in (1, 1e3, 1e6, 1e9))


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
    kinds = dict.fromkeys(request["functions"], Function) | dict.fromkeys(request["classes"], Class)
    stand_ins = {name: kind(exchange, ["g", name]) for name, kind in kinds.items()}
    module.__dict__.update(stand_ins, candidate=stand_ins[request["candidate"]])
    return module


def run(channel: int, request: dict[str, Any]) -> None:
    """Send the plan of the tests, the outcome of each, and how the whole ended."""
    exchange = Exchange(channel)
    unittest.main = lambda *_, **__: None  # type: ignore[assignment]  # test files that end with it are imported here
    try:
        plan = assertions.AssertionPlan(request["tests"], "<tests>")
        module = _module(request, exchange)
        recorder = assertions.Recorder(plan, module.__dict__)
        _count_assertions(recorder)
        _keep_the_time_secret(request["seed"])
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
    outcomes = recorder.outcomes(finished=ending == "null")
    suites = _test_cases(module)
    # One that can say nothing about the solution, such as an empty one, is no test of it.
    names = [_name(test) for test in _leaves(suites) if plan.may_complain(*_name(test).split(".", 1))]
    _tell(channel, "plan", [*[[text, line] for text, line, _, _ in outcomes], *[[name, None] for name in names]])
    for number, (_, _, passed, message) in enumerate(outcomes):
        _tell(channel, "result", number, passed, message)
    report = _Report(channel, {name: len(outcomes) + i for i, name in enumerate(names)}, recorder)
    for suite in suites:
        suite.run(report)
    frames.write(channel, f'["done",{ending}]')
