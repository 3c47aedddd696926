"""Running model-written Python that may be hostile: values come back, never verdicts; see docs/sandbox.md."""

from .asynchronous import AsyncSandbox
from .errors import SandboxError, SandboxUnavailable
from .limits import Limits
from .results import CallOutcome, Case, Failure, Report, Status, TestOutcome, TestReport, Verdict
from .sandbox import Sandbox, shared_sandbox
from .settings import Settings
from .workers.ceiling import set_ceiling

__all__ = [
    "AsyncSandbox",
    "CallOutcome",
    "Case",
    "Failure",
    "Limits",
    "Report",
    "Sandbox",
    "SandboxError",
    "SandboxUnavailable",
    "Settings",
    "Status",
    "TestOutcome",
    "TestReport",
    "Verdict",
    "set_ceiling",
    "shared_sandbox",
]
