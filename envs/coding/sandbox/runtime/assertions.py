"""Assertions counted one by one: a test source is rewritten so that each tells how it went, and the rest still runs."""

from __future__ import annotations

import ast
import types
from typing import Any

from . import solution

_RECORD = "__record__"
_MAX_NAME = 200


class _Numbering(ast.NodeTransformer):
    """Wraps the assertions at module level and in `check`, not those of helpers or test classes."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines
        self._depth = 0
        self.found: list[list[Any]] = []

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        if self._depth or node.name != "check":
            return node
        self._depth += 1
        self.generic_visit(node)
        self._depth -= 1
        return node

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return node

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        if isinstance(node.test, ast.Constant) and node.test.value:
            return node  # it says nothing about the solution, and would count as a test passed
        text = "\n".join(self._lines[node.lineno - 1 : node.end_lineno]).strip()[:_MAX_NAME]
        number = len(self.found)
        self.found.append([text, node.lineno])
        source = (
            f"try: pass\nexcept BaseException as __e__: {_RECORD}({number}, __e__)\nelse: {_RECORD}({number}, None)"
        )
        wrapped = ast.parse(source).body[0]
        assert isinstance(wrapped, ast.Try)
        for part in ast.walk(wrapped):
            ast.copy_location(part, node)
        wrapped.body = [node]
        return wrapped


def _is_call_of_check(node: ast.stmt) -> bool:
    call = node.value if isinstance(node, ast.Expr) else None
    return isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "check"


class Plan:
    """Compiled tests and the list of assertions in them."""

    def __init__(self, source: str, file_name: str) -> None:
        tree = ast.parse(source)
        numbering = _Numbering(source.splitlines())
        self.has_check = any(isinstance(node, ast.FunctionDef) and node.name == "check" for node in tree.body)
        self.calls_check = any(_is_call_of_check(node) for node in tree.body)
        tree = ast.fix_missing_locations(numbering.visit(tree))
        self.assertions: list[list[Any]] = numbering.found
        """[text, line] of each."""
        if self.has_check and not self.assertions:
            self.assertions = [["check", None]]  # a check that complains in some other way is one test as a whole
        self.code: types.CodeType = compile(tree, file_name, "exec", dont_inherit=True)


class Recorder:
    """What became of each assertion of a plan."""

    def __init__(self, plan: Plan, namespace: dict[str, Any]) -> None:
        self._num_assertions = len(plan.assertions)
        self._num_passed: dict[int, int] = {}
        self._complaints: dict[int, str] = {}
        namespace[_RECORD] = self._record

    def _record(self, number: int, error: BaseException | None) -> None:
        if error is None:
            self._num_passed[number] = self._num_passed.get(number, 0) + 1
        elif number not in self._complaints:
            self._complaints[number] = solution.summary(error)

    def outcomes(self, *, finished: bool) -> list[tuple[bool, str]]:
        """Passed and message of each; one that was never reached passes only if the tests ran to their end."""
        return [self._outcome(number, finished) for number in range(self._num_assertions)]

    def _outcome(self, number: int, finished: bool) -> tuple[bool, str]:
        if number in self._complaints:
            return False, self._complaints[number]
        if finished or number in self._num_passed:
            return finished or number in self._num_passed, ""
        return False, "not reached"
