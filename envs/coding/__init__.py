"""Coding environments, in which two to four programmers write a line, a function or a class together."""

from ..sandbox import AsyncSandbox, Limits, Sandbox, SandboxError, SandboxUnavailable, shared_sandbox

__all__ = ["AsyncSandbox", "Limits", "Sandbox", "SandboxError", "SandboxUnavailable", "shared_sandbox"]
