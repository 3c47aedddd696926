"""What comes back from a run. All of it was computed on the trusted side, from values alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Status = Literal["ok", "load_error", "cpu_limit", "wall_limit", "output_limit", "malformed", "died"]
"""`ok`: ran to its end (single calls may still have raised). `load_error`: the code raised before any call, or lacks
the function. `cpu_limit`, `wall_limit`, `output_limit`: went over one. `malformed`: did not speak the protocol, so it
was tampered with. `died`: crashed or left."""


@dataclass(frozen=True)
class Failure:
    """An exception in the code under test."""

    kind: str
    """Name of the exception type."""
    message: str
    line: int | None = None
    """Last line of the code that it passed through, from 1; None outside of the code."""

    def __str__(self) -> str:
        place = "" if self.line is None else f" (line {self.line})"
        return f"{self.kind}: {self.message}{place}" if self.message else f"{self.kind}{place}"


@dataclass(frozen=True)
class CallOutcome:
    """One call: a value, or the failure that took its place."""

    value: Any = None
    failure: Failure | None = None

    @property
    def has_returned(self) -> bool:
        """Whether there is a value, None included."""
        return self.failure is None


@dataclass(frozen=True)
class Report:
    """One run of some code."""

    status: Status
    outcomes: tuple[CallOutcome, ...]
    """One for each call asked for, in order; calls that the run did not live to answer hold a failure."""
    failure: Failure | None
    """Why the status is not `ok`; None if it is."""
    stdout: str
    stderr: str
    cpu_s: float
    """Processor seconds used, of the run's process alone."""
    isolation: str
    """The tier it ran in: A, B, C or none."""

    @property
    def values(self) -> tuple[Any, ...]:
        """The value of each call, None where there is none."""
        return tuple(outcome.value for outcome in self.outcomes)

    @property
    def is_isolated(self) -> bool:
        """False if the code ran unconfined because that was asked for."""
        return self.isolation != "none"


@dataclass(frozen=True)
class Case:
    """A call and what it must return."""

    arguments: tuple[Any, ...]
    expected: Any = None
    keywords: Mapping[str, Any] = field(default_factory=dict)
    tolerance: float = 0.0
    """Allowed difference of floats, relative above 1 and absolute below. No wrong integer is right within it: an
    expected integer is met by no other whole number, and an expected infinity only by itself."""
    accepts: Callable[[Any], bool] | None = None
    """A predicate on the value in place of `expected`, where several answers are right. It runs on the trusted side."""


@dataclass(frozen=True)
class Verdict:
    """Cases compared with a report."""

    report: Report
    passed: tuple[bool, ...]
    """For each case. Cases answered before a death count; all are False if the run was tampered with."""

    @property
    def all_passed(self) -> bool:
        """True if there are cases, every one passed, and the run ended by itself and in order."""
        return self.report.status == "ok" and bool(self.passed) and all(self.passed)

    @property
    def fraction(self) -> float:
        """Share of the cases that passed, 0 if there are none."""
        return sum(self.passed) / max(1, len(self.passed))

    @property
    def is_isolated(self) -> bool:
        """False if the code ran unconfined because that was asked for."""
        return self.report.is_isolated


@dataclass(frozen=True)
class TestOutcome:
    """One assertion or one test method."""

    name: str
    """The assertion's text, or `Class.method`."""
    passed: bool
    message: str
    """What spoke against it; empty if it passed."""
    line: int | None = None
    """Line of the assertion in the test source, from 1."""


@dataclass(frozen=True)
class TestReport:
    """A test source run against some code."""

    status: Status
    tests: tuple[TestOutcome, ...]
    failure: Failure | None
    """Why the status is not `ok`, or what the tests raised outside of any assertion."""
    test_failure: Failure | None
    """Set if the test source itself is broken: it does not compile, or could not be run to its end."""
    cpu_s: float
    """Processor seconds that the code under test used."""
    isolation: str

    @property
    def all_passed(self) -> bool:
        """True if the tests ran to their end, there are some, and every one passed."""
        complete = self.status == "ok" and self.failure is None and self.test_failure is None
        return complete and bool(self.tests) and all(test.passed for test in self.tests)

    @property
    def fraction(self) -> float:
        """Share of the tests that passed, 0 if there are none."""
        return sum(test.passed for test in self.tests) / max(1, len(self.tests))

    @property
    def is_isolated(self) -> bool:
        """False if the code ran unconfined because that was asked for."""
        return self.isolation != "none"
