"""Running model-written Python that may be hostile: values come back, never verdicts; see docs/sandbox.md."""

from .asynchronous import AsyncSandbox
from .errors import SandboxError, SandboxUnavailable
from .limits import Limits
from .results import Case, Failure, Outcome, Report, Status, TestOutcome, TestReport, Verdict
from .sandbox import Sandbox, shared_sandbox
from .settings import Settings

__all__ = [
    "AsyncSandbox",
    "Case",
    "Failure",
    "Limits",
    "Outcome",
    "Report",
    "Sandbox",
    "SandboxError",
    "SandboxUnavailable",
    "Settings",
    "Status",
    "TestOutcome",
    "TestReport",
    "Verdict",
    "shared_sandbox",
]
