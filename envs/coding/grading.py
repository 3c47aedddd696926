"""Running code against its tests, apart from what the code is for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..sandbox import Case, Limits, Sandbox


@dataclass(frozen=True)
class TestResult:
    """What became of one test."""

    name: str
    """An assertion's text, or `Class.method`."""
    is_passed: bool
    message: str = ""
    """What spoke against it."""
    line: int | None = None
    """Line of the assertion in the test source, from 1."""


@dataclass(frozen=True)
class Grade:
    """What became of all tests of a program."""

    results: tuple[TestResult, ...]
    status: str
    """As of the sandbox's reports: "ok", "load_error", "cpu_limit", ..."""
    fault: str = ""
    """Why the program could not be run to its end; empty if it could."""
    cpu_s: float = 0.0

    def of(self, is_counted: Callable[[TestResult], bool]) -> Grade:
        """The grade without the tests that do not count."""
        return Grade(
            tuple(result for result in self.results if is_counted(result)), self.status, self.fault, self.cpu_s
        )

    @property
    def num_passed(self) -> int:
        return sum(result.is_passed for result in self.results)

    @property
    def pass_rate(self) -> float:
        """Share of the tests passed; 0 without tests."""
        return self.num_passed / len(self.results) if self.results else 0.0

    @property
    def is_perfect(self) -> bool:
        """Whether there are tests, all passed, and the program ran to its end."""
        return bool(self.results) and self.num_passed == len(self.results) and not self.fault


def graded_by_source(
    sandbox: Sandbox,
    program: str,
    tests: str,
    limits: Limits,
    *,
    seed: int,
    candidate: str,
    functions: Sequence[str] = (),
    classes: Sequence[str] = (),
    support: str = "",
) -> Grade:
    """The program under a test source: assertions, a function `check(candidate)`, or unittest classes.

    Args:
        sandbox: where both run, apart from each other.
        program: the source under test.
        tests: the test source.
        limits: of the program; those of the tests are twice as wide.
        seed: what the tests draw from, and the program otherwise: another one in each episode and turn.
        candidate: the name that `check` is given.
        functions: further functions of the program that the tests call.
        classes: classes of the program that the tests make instances of.
        support: trusted source that runs before the tests.

    Raises:
        SandboxError: if the program could not be tested at all, which says nothing about it.
        ValueError: if the tests themselves are broken.
    """
    report = sandbox.run_tests(
        program, tests, candidate, functions=functions, classes=classes, support=support, limits=limits, seed=seed
    )
    # Tests that could not even be set up are the data's fault; ones that died may have been worn out by the program.
    if report.test_failure is not None and report.test_failure.kind != "TestsDied":
        raise ValueError(f"the tests of {candidate!r} are broken: {report.test_failure}; repair the data's tests")
    results = tuple(TestResult(test.name, test.passed, test.message, test.line) for test in report.tests)
    return Grade(results, report.status, str(report.failure or ""), report.cpu_s)


def graded_by_calls(
    sandbox: Sandbox,
    program: str,
    function: str,
    calls: Sequence[tuple[tuple[Any, ...], Any]],
    limits: Limits,
    *,
    seed: int,
) -> Grade:
    """The program by the values that one of its functions returns.

    Args:
        sandbox: where it runs.
        program: the source.
        function: its name.
        calls: (arguments, expected value) of each test.
        limits: of all calls together.
        seed: what the program draws from.
    """
    cases = [Case(arguments, expected, tolerance=1e-9) for arguments, expected in calls]
    verdict = sandbox.check(program, function, cases, limits=limits, seed=seed)
    results = tuple(
        TestResult(
            f"assert {function}({', '.join(map(repr, arguments))}) == {expected!r}",
            passed,
            "" if passed else str(outcome.failure or f"it returned {outcome.value!r:.200}"),
        )
        for (arguments, expected), passed, outcome in zip(calls, verdict.passed, verdict.report.outcomes, strict=True)
    )
    return Grade(results, verdict.report.status, str(verdict.report.failure or ""), verdict.report.cpu_s)


def values_of(
    sandbox: Sandbox, program: str, function: str, calls: Sequence[tuple[Any, ...]], limits: Limits
) -> tuple[Any, ...]:
    """What a trusted function returns; it is run in the jail too, as data may come from anywhere.

    Raises:
        ValueError: if it fails on any of the arguments.
    """
    report = sandbox.call(program, function, calls, limits=limits)
    for arguments, outcome in zip(calls, report.outcomes, strict=True):
        if outcome.failure is not None:
            raise ValueError(f"the reference {function}{arguments} fails, {outcome.failure}; repair it or its inputs")
    return report.values
