"""Grades of programs from tests that run in the sandbox."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..sandbox import Limits, Sandbox, TestOutcome


@dataclass(frozen=True)
class Grade:
    """Results of all tests of a program."""

    results: tuple[TestOutcome, ...]
    status: str  # status of the sandbox's report, such as "ok" or "cpu_limit"
    fault: str = ""  # reason why the program did not run to its end. Empty: it ran to its end.
    cpu_s: float = 0.0

    @property
    def num_passed(self) -> int:
        return sum(result.passed for result in self.results)

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
    """Run tests on a program with `Sandbox.run_tests`. Raise ValueError if the tests do not compile or cannot start."""
    report = sandbox.run_tests(program, tests, candidate, limits=limits, seed=seed, **options)
    # "TestsDied" is no fault of the data: the program may have used up the time of the tests.
    if report.test_failure is not None and report.test_failure.kind != "TestsDied":
        raise ValueError(f"the tests of {candidate!r} are broken: {report.test_failure}; repair the tests in the data")
    return Grade(report.tests, report.status, str(report.failure or ""), report.cpu_s)
