"""Rewriting of test sources, so that each assertion is recorded and a failed assertion does not stop the tests.

Assertions in branches that were not taken are not scored. Assertions in a loop without iterations fail. Otherwise an
empty result of `f` would pass `for item in f(3): assert item > 0`.
"""

from __future__ import annotations

import ast
import types
from typing import Any, NamedTuple

from . import solution

_RECORD, _LOOP, _ITERATION, _CHECKED, _CAUGHT = "__record__", "__loop__", "__turn__", "__checked__", "__caught__"
_MAX_NAME = 200


def _call(name: str, at: ast.AST, *numbers: int) -> ast.stmt:
    node = ast.Expr(ast.Call(ast.Name(name, ast.Load()), [ast.Constant(number) for number in numbers], []))
    for part in ast.walk(node):
        ast.copy_location(part, at)
    return node


def _is_constant(node: ast.AST) -> bool:
    """Return True for an assertion that always passes, such as `assert True`."""
    return isinstance(node, ast.Assert) and isinstance(node.test, ast.Constant) and bool(node.test.value)


def _is_complaint(node: ast.AST) -> bool:
    """Return True for a syntax node that can make a test fail: assertion, `raise`, or call of an assertion method."""
    if isinstance(node, ast.Assert | ast.Raise):
        return not _is_constant(node)
    is_method = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    return is_method and node.func.attr.startswith(("assert", "fail"))  # type: ignore[attr-defined]


def _complains(nodes: list[ast.stmt]) -> bool:
    return any(_is_complaint(part) for node in nodes for part in ast.walk(node))


class _Rewriting(ast.NodeTransformer):
    """Transformer of test code. It adds calls that record assertions, loop iterations and exception handlers."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines
        self._is_numbered = True
        self._loops: list[int] = []
        self._tries: list[int] = []
        self.num_places = 0
        self.assertions: list[_Assertion] = []

    def _place(self) -> int:
        self.num_places += 1
        return self.num_places

    def _scope(self, node: ast.AST, *, is_numbered: bool) -> ast.AST:
        outer = self._is_numbered, self._loops, self._tries
        self._is_numbered, self._loops, self._tries = is_numbered, [], []
        self.generic_visit(node)
        self._is_numbered, self._loops, self._tries = outer
        return node

    def visit_ClassDef(self, node: Any) -> ast.AST:
        return self._scope(node, is_numbered=False)

    visit_AsyncFunctionDef = visit_ClassDef

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return self._scope(node, is_numbered=self._is_numbered and node.name == "check" and node.col_offset == 0)

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        return node

    def _visit_loop(self, node: Any) -> Any:
        if not _complains(node.body):
            return self.generic_visit(node)
        number = self._place()
        self._loops.append(number)
        node.body = [_call(_ITERATION, node, number), *self._visited(node.body)]
        self._loops.pop()
        node.orelse = self._visited(node.orelse)
        return [_call(_LOOP, node, number, node.lineno), node]

    visit_For = visit_While = visit_AsyncFor = _visit_loop

    def visit_Try(self, node: ast.Try) -> ast.AST:
        is_expecting = _complains([*node.body, *node.orelse])
        number = self._place()
        self._tries += [number] * is_expecting
        node.body, node.orelse = self._visited(node.body), self._visited(node.orelse)
        del self._tries[len(self._tries) - is_expecting :]
        for handler in node.handlers:
            returns = any(isinstance(part, ast.Return) for part in handler.body)  # skips the assertions that follow
            heard = [_call(_CAUGHT, handler, number)] * (is_expecting or returns)
            handler.body = [*heard, *self._visited(handler.body)]
        node.finalbody = self._visited(node.finalbody)
        return node

    def visit_If(self, node: ast.If) -> Any:
        is_check = any(isinstance(part, ast.Raise) for part in [*node.body, *node.orelse])
        self.generic_visit(node)
        return [_call(_CHECKED, node), node] if is_check else node

    def _visited(self, nodes: list[ast.stmt]) -> list[ast.stmt]:
        found: list[ast.stmt] = []
        for node in nodes:
            visited = self.visit(node)
            found += visited if isinstance(visited, list) else [visited]
        return found

    def visit_Assert(self, node: ast.Assert) -> Any:
        if _is_constant(node):
            return node
        if not self._is_numbered:
            return [_call(_CHECKED, node), node]
        text = "\n".join(self._lines[node.lineno - 1 : node.end_lineno]).strip()[:_MAX_NAME]
        number = len(self.assertions)
        self.assertions.append(_Assertion(text, node.lineno, tuple(self._loops), tuple(self._tries)))
        source = (
            f"try: pass\nexcept BaseException as __e__: {_RECORD}({number}, __e__)\nelse: {_RECORD}({number}, None)"
        )
        wrapped = ast.parse(source).body[0]
        assert isinstance(wrapped, ast.Try)
        for part in ast.walk(wrapped):
            ast.copy_location(part, node)
        wrapped.body = [node]
        return wrapped


class _Assertion(NamedTuple):
    text: str
    line: int | None
    loops: tuple[int, ...]  # numbers of the enclosing loops
    tries: tuple[int, ...]  # numbers of the enclosing `try` statements


def _is_call_of_check(node: ast.stmt) -> bool:
    call = node.value if isinstance(node, ast.Expr) else None
    return isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "check"


class AssertionPlan:
    """Compiled test source and its assertions."""

    def __init__(self, source: str, file_name: str) -> None:
        tree = ast.parse(source)
        self._tree = ast.parse(source)
        rewriting = _Rewriting(source.splitlines())
        self.has_check = any(isinstance(node, ast.FunctionDef) and node.name == "check" for node in tree.body)
        self.calls_check = any(_is_call_of_check(node) for node in tree.body)
        tree = ast.fix_missing_locations(rewriting.visit(tree))
        self.assertions = rewriting.assertions
        self.is_whole = self.has_check and not self.assertions  # if True, the call of `check` is one test
        self.code: types.CodeType = compile(tree, file_name, "exec", dont_inherit=True)

    def may_complain(self, class_name: str, method: str) -> bool:
        """Return True if a test method can fail: it has an assertion or `raise`, or calls a function of the tests."""
        own = {node.name for node in ast.walk(self._tree) if isinstance(node, ast.FunctionDef)}
        for node in self._tree.body:
            if isinstance(node, ast.ClassDef) and node.name == class_name:
                for part in node.body:
                    if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef) and part.name == method:
                        return _complains(part.body) or bool(_called(part) & own)
        return True  # inherited or created at run time, so its source is unknown


def _called(node: ast.AST) -> set[str]:
    functions = [part.func for part in ast.walk(node) if isinstance(part, ast.Call)]
    return {part.attr if isinstance(part, ast.Attribute) else getattr(part, "id", "") for part in functions}


class Recorder:
    """Recorder of the results of assertions while the rewritten tests run."""

    def __init__(self, plan: AssertionPlan, namespace: dict[str, Any]) -> None:
        self._plan = plan
        self._num_passed: dict[int, int] = {}
        self._complaints: dict[int, str] = {}
        self._lines: dict[int, int] = {}
        self._iterated: set[int] = set()
        self._caught: set[int] = set()
        self.num_checked = 0  # number of assertions and expected exceptions since the last call of `begin`
        namespace[_RECORD] = self._record
        namespace[_LOOP] = self._lines.setdefault
        namespace[_ITERATION] = self._iterated.add
        namespace[_CHECKED] = self.count
        namespace[_CAUGHT] = self._catch

    def _record(self, number: int, error: BaseException | None) -> None:
        self.num_checked += 1
        if error is None:
            self._num_passed[number] = self._num_passed.get(number, 0) + 1
        elif number not in self._complaints:
            self._complaints[number] = solution.summary(error)

    def _catch(self, number: int) -> None:
        self.num_checked += 1
        self._caught.add(number)

    def count(self) -> None:
        self.num_checked += 1

    def begin(self) -> None:
        self.num_checked = 0
        self._lines.clear()
        self._iterated.clear()

    def complaint(self) -> str | None:
        """Return why a test without failed assertions fails: a loop was empty, or no assertion ran. None: it passes."""
        idle = [line for number, line in self._lines.items() if number not in self._iterated]
        if idle:
            return f"the loop in line {idle[0]} never ran, and so neither did its assertions"
        return None if self.num_checked else "no assertion ran"

    def outcomes(self, *, finished: bool) -> list[tuple[str, int | None, bool, str]]:
        """Return (source text, line number, passed, message) of each scored assertion.

        With finished=False, the tests ended early, and assertions that were not reached fail.
        """
        if self._plan.is_whole:
            complaint = self.complaint() if finished else "not reached"
            return [("check", None, complaint is None, complaint or "")]
        judged = [(each, self._judged(number, each, finished)) for number, each in enumerate(self._plan.assertions)]
        found = [(each.text, each.line, *outcome) for each, outcome in judged if outcome is not None]
        if not found:
            found = [(each.text, each.line, False, "not reached") for each, _ in judged]
        return found

    def _judged(self, number: int, assertion: _Assertion, finished: bool) -> tuple[bool, str] | None:
        if number in self._complaints:
            return False, self._complaints[number]
        if number in self._num_passed:
            return True, ""
        if not finished:
            return False, "not reached"
        for loop in assertion.loops:
            if loop in self._lines and loop not in self._iterated:
                return False, f"the loop in line {self._lines[loop]} never ran"
        return (True, "") if self._caught.intersection(assertion.tries) else None
