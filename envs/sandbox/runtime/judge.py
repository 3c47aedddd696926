"""Runner of trusted tests in a jail (judge). The code under test runs in another jail (solver).

`candidate` and all other names under test are proxies that forward calls to the solver. Results are plain data, or
handles of objects of the solver. Handles are never equal to plain data.
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
from collections.abc import Callable
from typing import Any

from . import assertions, frames, solution
from .stand_in import Class, Exchange, Function

_A_DAY_S = 86400.0


def _send(channel: int, *message: Any) -> None:
    frames.write(channel, json.dumps(message))


class _Report(unittest.TestResult):
    """Test result that sends the outcome of each test method. A method passes if an assertion ran and none failed."""

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

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:
        if self._complaint is None:
            self._complaint = solution.summary(err[1])

    addError = addFailure

    def addSubTest(self, test: unittest.TestCase, subtest: unittest.TestCase, err: Any) -> None:
        if err is not None:
            self.addFailure(subtest, err)

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
            _send(self._channel, "result", number, self._complaint is None, self._complaint or "")


def _count_assertions(recorder: assertions.Recorder) -> None:
    def counting(method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def call(*arguments: Any, **keywords: Any) -> Any:
            recorder.count()
            return method(*arguments, **keywords)

        return call

    for name, method in list(vars(unittest.TestCase).items()):
        if name.startswith(("assert", "fail")) and isinstance(method, types.FunctionType):
            setattr(unittest.TestCase, name, counting(method))


def _salt_time_seeds(salt: int) -> None:
    """Change random seeds of the tests that are the current time, because the code under test can read the time.

    Other seeds are unchanged, because expected values in tests may depend on their random numbers.
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


def _suites(module: types.ModuleType) -> list[unittest.TestSuite]:
    return [
        unittest.defaultTestLoader.loadTestsFromTestCase(value)
        for value in list(vars(module).values())
        if isinstance(value, type) and issubclass(value, unittest.TestCase) and value.__module__ == module.__name__
    ]


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
    """Run the tests. Send the list of tests, the outcome of each test, and an exception that ended the tests early."""
    exchange = Exchange(channel)
    unittest.main = lambda *_, **__: None  # type: ignore[assignment]  # many test files call it at their end
    try:
        plan = assertions.AssertionPlan(request["source"], "<tests>")
        module = _module(request, exchange)
        recorder = assertions.Recorder(plan, module.__dict__)
        _count_assertions(recorder)
        _salt_time_seeds(request["seed"])
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
    suites = _suites(module)
    every = [_name(test) for suite in suites for test in suite if isinstance(test, unittest.TestCase)]
    names = [name for name in every if plan.may_complain(*name.split(".", 1))]  # other tests cannot fail
    _send(channel, "plan", [*[[text, line] for text, line, _, _ in outcomes], *[[name, None] for name in names]])
    for number, (_, _, passed, message) in enumerate(outcomes):
        _send(channel, "result", number, passed, message)
    report = _Report(channel, {name: len(outcomes) + i for i, name in enumerate(names)}, recorder)
    for suite in suites:
        suite.run(report)
    frames.write(channel, f'["done",{ending}]')
