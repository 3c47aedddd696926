"""A solution divided: expressions of a function become functions of helpers, which it calls in their place."""

from __future__ import annotations

import ast
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from ..syntax import (
    SCOPES,
    defining_statements,
    function_named,
    ignores_result,
    is_thin_wrapper,
    own_nodes,
    returned_through,
    source,
)

_PARTS = (ast.BinOp, ast.Compare, ast.Call, ast.BoolOp, ast.IfExp, ast.ListComp, ast.SetComp, ast.DictComp)
_TIED = (ast.Lambda, ast.NamedExpr, ast.Yield, ast.YieldFrom, ast.Await)  # to the function that they stand in
_FRAME = {"dir", "eval", "exec", "globals", "locals", "super", "vars"}


def identity(name: str) -> str:
    """Code of a helper that hands back what it is given."""
    return f"def {name}(value):\n    return value"


@dataclass(frozen=True)
class _Part:
    """An expression that a helper took over."""

    place: tuple[int, int]
    """Line and column of the solution where it stood."""
    around: str
    """Imports, constants and functions that it needs."""
    parameters: tuple[str, ...]
    body: str
    call: ast.Call
    """What stands there now."""

    def code(self, name: str) -> str:
        function = f"def {name}({', '.join(self.parameters)}):\n    return {self.body}"
        return f"{self.around}\n\n{function}" if self.around else function


def divided(
    statements: Sequence[ast.stmt], function: str, names: Sequence[str], known: Sequence[str] = ()
) -> tuple[str, ...] | None:
    """Code of helpers of these names, and of the statements, whose function now calls all of them.

    The largest expressions of the function become helpers' functions, in the order in which they stand in it. Where
    there are too few, the remaining helpers hand back what the function is about to return.

    Args:
        statements: the solution at top level; changed in place.
        function: name of the function that is divided.
        names: of the helpers whose functions are to be found.
        known: of helpers that the function calls already.

    Returns:
        The helpers' code, then the solution's; None if it cannot be written out.
    """
    main = function_named(statements, function)
    parts: list[_Part] = []
    while main and len(parts) < len(names) and (part := _taken(statements, main, names, known)):
        parts.append(part)
    parts.sort(key=lambda part: part.place)
    for name, part in zip(names, parts, strict=False):
        part.call.func = ast.Name(name, ast.Load())
    idle = names[len(parts) :]
    for name in idle:
        statements = [returned_through(node, function, name) for node in statements]
    changed = source(tuple(statements))
    codes = [part.code(name) for name, part in zip(names, parts, strict=False)] + [identity(name) for name in idle]
    return (*codes, changed) if changed else None


def _taken(
    statements: Sequence[ast.stmt], main: ast.FunctionDef, names: Sequence[str], known: Sequence[str]
) -> _Part | None:
    """The largest expression that a helper can take over, taken over; None if there is none."""
    places = {child: parent for parent in ast.walk(main) for child in ast.iter_child_nodes(parent)}
    inside = [node for statement in main.body if not isinstance(statement, SCOPES) for node in own_nodes(statement)]
    candidates = [node for node in inside if isinstance(node, _PARTS)]
    for expression in sorted(candidates, key=_size, reverse=True):  # of equal ones the first
        outer = _local_names(main, expression)
        parameters = _parameters(expression, outer, {*names, *known})
        body = _line(expression)
        if not parameters or body is None or isinstance(places[expression], ast.Expr):
            continue
        call = ast.Call(ast.Name(names[0], ast.Load()), [ast.Name(each, ast.Load()) for each in parameters], [])
        _put(places[expression], expression, call)
        if is_thin_wrapper(main, *names, *known) or ignores_result([main], names[0]):
            _put(places[expression], call, expression)
            continue
        others = [node for node in statements if node is not main]
        around = source(defining_statements(others, [expression], foreign={*names, *known})) or ""
        return _Part((expression.lineno, expression.col_offset), around, parameters, body, call)
    return None


def _parameters(expression: ast.expr, outer: set[str], helpers: Collection[str]) -> tuple[str, ...]:
    """The local names that an expression reads; none if it cannot leave its function, or calls a helper."""
    nodes = list(ast.walk(expression))
    named = [node for node in nodes if isinstance(node, ast.Name)]
    own = {node.id for node in named if isinstance(node.ctx, ast.Store)}
    read = dict.fromkeys(node.id for node in named if isinstance(node.ctx, ast.Load))
    is_tied = own & outer or read.keys() & {*_FRAME, *helpers} or any(isinstance(node, _TIED) for node in nodes)
    return () if is_tied else tuple(name for name in read if name in outer)


def _local_names(main: ast.FunctionDef, expression: ast.expr) -> set[str]:
    """The names that a function binds anywhere but in an expression."""
    skipped = set(ast.walk(expression))
    found = set()
    for node in ast.walk(main):
        if node in skipped or node is main:
            continue
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.ExceptHandler) and node.name:
            found.add(node.name)
        elif isinstance(node, ast.alias):
            found.add(node.asname or node.name.partition(".")[0])
    return found


def _line(expression: ast.expr) -> str | None:
    """The expression on a line; None if it takes more than one, or is nested too deep to be written out."""
    text = source([ast.Expr(expression)])
    return text if text and "\n" not in text else None


def _size(expression: ast.expr) -> int:
    return sum(1 for _ in ast.walk(expression))


def _put(parent: ast.AST, old: ast.expr, new: ast.expr) -> None:
    """Put an expression in the place of another."""
    for field, value in ast.iter_fields(parent):
        if value is old:
            setattr(parent, field, new)
        elif isinstance(value, list):
            value[:] = [new if each is old else each for each in value]
