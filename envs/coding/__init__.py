"""Two programmers, one program: tasks from a line of code to a class."""

from ..sandbox import AsyncSandbox, Limits, Sandbox, SandboxError, SandboxUnavailable, shared_sandbox

__all__ = ["AsyncSandbox", "Limits", "Sandbox", "SandboxError", "SandboxUnavailable", "shared_sandbox"]
