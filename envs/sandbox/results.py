"""Results of sandboxed runs, computed in the trusted process from plain data that the sandboxed process sends."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Status = Literal["ok", "load_error", "cpu_limit", "wall_limit", "output_limit", "malformed", "died"]
"""`ok`: the run ended normally, but calls may have raised exceptions. `load_error`: an exception was raised before the
first call, or the function does not exist. `cpu_limit`, `wall_limit`, `output_limit`: the run exceeded this limit.
`malformed`: the process sent invalid messages, probably on purpose. `died`: the process crashed or exited."""


@dataclass(frozen=True)
class Failure:
    """Exception in the code under test, or another reason why a run failed."""

    kind: str
    """Name of the exception type."""
    message: str
    line: int | None = None
    """Line number in the code, from 1. None: the exception was raised outside of the code."""

    def __str__(self) -> str:
        place = "" if self.line is None else f" (line {self.line})"
        return f"{self.kind}: {self.message}{place}" if self.message else f"{self.kind}{place}"


@dataclass(frozen=True)
class CallOutcome:
    """Result of a sandboxed call: the returned value or a failure."""

    value: Any = None
    failure: Failure | None = None

    @property
    def has_returned(self) -> bool:
        return self.failure is None


@dataclass(frozen=True)
class Report:
    """Result of a sandboxed run, such as a `Sandbox.call`."""

    status: Status
    outcomes: tuple[CallOutcome, ...]
    """One outcome per requested call, in order. The outcome of a call that was not made is a failure."""
    failure: Failure | None
    """Reason why the status is not `ok`. None: the status is `ok`."""
    stdout: str
    stderr: str
    cpu_s: float
    """CPU time of all processes of the run in seconds."""
    isolation: str
    """Isolation tier: A, B, C or none."""

    @property
    def values(self) -> tuple[Any, ...]:
        """Returned value of each call. None: the call returned None or failed."""
        return tuple(outcome.value for outcome in self.outcomes)

    @property
    def is_isolated(self) -> bool:
        """True if the code ran in a jail, that is, without `isolation="none"`."""
        return self.isolation != "none"


@dataclass(frozen=True)
class Case:
    """Test case: the arguments of a call and the expected result."""

    arguments: tuple[Any, ...]
    expected: Any = None
    keywords: Mapping[str, Any] = field(default_factory=dict)
    tolerance: float = 0.0
    """Largest accepted difference of numbers, relative to max(1, |expected|). Not used for infinity and nan, and not if
    an integer is expected and the result is a whole number."""
    accepts: Callable[[Any], bool] | None = None
    """Function that returns True for correct values, used instead of `expected`. It runs in the trusted process."""


@dataclass(frozen=True)
class Verdict:
    """Result of `Sandbox.check`."""

    report: Report
    passed: tuple[bool, ...]
    """True for each case that passed. All are False if the status is `malformed` or `output_limit`."""

    @property
    def all_passed(self) -> bool:
        """True if there are cases, all passed, and the status is `ok`."""
        return self.report.status == "ok" and bool(self.passed) and all(self.passed)

    @property
    def fraction(self) -> float:
        """Fraction of the cases that passed; 0 without cases."""
        return sum(self.passed) / max(1, len(self.passed))

    @property
    def is_isolated(self) -> bool:
        return self.report.is_isolated


@dataclass(frozen=True)
class TestOutcome:
    """Result of an assertion or of a test method."""

    name: str
    """Source of the assertion, or `Class.method`."""
    passed: bool
    message: str
    """Reason of the failure. Empty: the test passed."""
    line: int | None = None
    """Line number of the assertion in the test source, from 1. None: a test method or a whole `check`."""


@dataclass(frozen=True)
class TestReport:
    """Result of `Sandbox.run_tests`."""

    status: Status
    tests: tuple[TestOutcome, ...]
    failure: Failure | None
    """Reason why the status is not `ok`, or an exception in the tests outside of assertions."""
    test_failure: Failure | None
    """Reason why the tests did not compile, did not start, or died. None: the tests ran."""
    cpu_s: float
    """CPU time of the code under test in seconds."""
    isolation: str

    @property
    def all_passed(self) -> bool:
        """True if there are tests, all passed, and the code and the tests ran to their end."""
        complete = self.status == "ok" and self.failure is None and self.test_failure is None
        return complete and bool(self.tests) and all(test.passed for test in self.tests)

    @property
    def fraction(self) -> float:
        """Fraction of the tests that passed; 0 without tests."""
        return sum(test.passed for test in self.tests) / max(1, len(self.tests))

    @property
    def is_isolated(self) -> bool:
        return self.isolation != "none"
