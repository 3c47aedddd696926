"""Grades of programs: results of tests that run in the sandbox."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..sandbox import Limits, Sandbox


@dataclass(frozen=True)
class TestResult:
    """Result of one test."""

    name: str
    """Text of an assertion, or `Class.method`."""
    is_passed: bool
    message: str = ""
    """Reason why the test failed, if it failed."""
    line: int | None = None
    """Line of the assertion in the test source, from 1."""


@dataclass(frozen=True)
class Grade:
    """Results of all tests of a program."""

    results: tuple[TestResult, ...]
    status: str
    """Status of the sandbox's report: "ok", "load_error", "cpu_limit", ..."""
    fault: str = ""
    """Reason why the program did not run to its end; empty if it did."""
    cpu_s: float = 0.0

    @property
    def num_passed(self) -> int:
        return sum(result.is_passed for result in self.results)

    @property
    def pass_rate(self) -> float:
        """Fraction of the tests that passed; 0 without tests."""
        return self.num_passed / len(self.results) if self.results else 0.0

    @property
    def is_perfect(self) -> bool:
        """True if there are tests, all tests passed, and the program ran to its end."""
        return bool(self.results) and self.num_passed == len(self.results) and not self.fault


def graded_by_source(
    sandbox: Sandbox, program: str, tests: str, candidate: str, limits: Limits, *, seed: int, **options: Any
) -> Grade:
    """Run tests on a program, and return its grade.

    Args:
        sandbox: runs the program and the tests in separate jails (isolated processes).
        program: source under test.
        tests: assertions, a function `check(candidate)`, or unittest classes.
        candidate: name of the function or class under test, which `check` receives.
        limits: resource limits of the program. The limits of the tests are twice as high.
        seed: seed of the tests and the program.
        **options: `functions`, `classes` and `support` of `Sandbox.run_tests`.

    Raises:
        SandboxError: if the program could not be tested.
        ValueError: if the tests are broken.
    """
    report = sandbox.run_tests(program, tests, candidate, limits=limits, seed=seed, **options)
    # If the tests cannot be set up, the data is wrong. If they died, the program may have used up their limits.
    if report.test_failure is not None and report.test_failure.kind != "TestsDied":
        raise ValueError(f"the tests of {candidate!r} are broken: {report.test_failure}; repair the data's tests")
    results = tuple(TestResult(test.name, test.passed, test.message, test.line) for test in report.tests)
    return Grade(results, report.status, str(report.failure or ""), report.cpu_s)
