"""Sandbox for untrusted Python code. Guide: docs/sandbox.md."""

from .results import CallOutcome, Case, Failure, Report, Status, TestOutcome, TestReport, Verdict
from .sandbox import AsyncSandbox, Sandbox, shared_sandbox
from .settings import Limits, SandboxError, SandboxUnavailable, Settings
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
