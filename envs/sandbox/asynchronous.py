"""The sandbox for an asyncio program: the same calls, awaited."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

from .results import Case, Report, TestReport, Verdict
from .sandbox import Sandbox


class AsyncSandbox:
    """A view of a sandbox whose calls wait in threads, so that the event loop goes on.

    At most `num_workers` run at once. Options are those of the sandbox's method of the same name.
    """

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox

    async def call(self, code: str, function: str, arguments_list: Iterable[Sequence[Any]], **options: Any) -> Report:
        """Values of a function of the code."""
        return await asyncio.to_thread(self.sandbox.call, code, function, arguments_list, **options)

    async def check(self, code: str, entry_point: str, cases: Iterable[Case], **options: Any) -> Verdict:
        """Cases that a function of the code passes."""
        return await asyncio.to_thread(self.sandbox.check, code, entry_point, cases, **options)

    async def run_program(self, code: str, stdin: str = "", **options: Any) -> Report:
        """The code as a main program."""
        return await asyncio.to_thread(self.sandbox.run_program, code, stdin, **options)

    async def run_tests(self, code: str, test_source: str, entry_point: str, **options: Any) -> TestReport:
        """Outcome of each test of a test source."""
        return await asyncio.to_thread(self.sandbox.run_tests, code, test_source, entry_point, **options)
