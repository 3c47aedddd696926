"""Division of a solution among programmers, by moving expressions of a function into helper functions."""

from __future__ import annotations

import ast
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from ..syntax import (
    SCOPES,
    bound_name,
    defining_statements,
    function_named,
    ignores_result,
    is_thin_wrapper,
    own_nodes,
    returned_through,
    source,
)

_PARTS = (ast.BinOp, ast.Compare, ast.Call, ast.BoolOp, ast.IfExp, ast.ListComp, ast.SetComp, ast.DictComp)
_TIED = (ast.Lambda, ast.NamedExpr, ast.Yield, ast.YieldFrom, ast.Await)  # cannot be moved to another function
_FRAME = {"dir", "eval", "exec", "globals", "locals", "super", "vars"}


def identity(name: str) -> str:
    """Return the code of a function that returns its argument."""
    return f"def {name}(value):\n    return value"


@dataclass(frozen=True)
class _Part:
    """Expression of the solution that was moved into a helper function."""

    place: tuple[int, int]  # line and column of the expression in the solution
    around: str  # source of the imports, constants and functions that the expression needs
    parameters: tuple[str, ...]
    body: str
    call: ast.Call  # replaces the expression

    def code(self, name: str) -> str:
        function = f"def {name}({', '.join(self.parameters)}):\n    return {self.body}"
        return f"{self.around}\n\n{function}" if self.around else function


def divided(
    statements: Sequence[ast.stmt], function: str, names: Sequence[str], known: Sequence[str] = ()
) -> tuple[str, ...] | None:
    """Move the largest expressions of a function into new helper functions with these names.

    If there are too few expressions, the other helpers return their argument, and the function passes its return value
    through these helpers. `known` are names of helpers that the function already calls. `statements` are the top-level
    statements of the solution, which are changed in place.

    Returns:
        Code of each helper, then of the changed solution. None: a syntax tree cannot be converted to source code.
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
    """Replace the largest expression that a helper can compute with a call of the helper. None: there is none."""
    places = {child: parent for parent in ast.walk(main) for child in ast.iter_child_nodes(parent)}
    inside = [node for statement in main.body if not isinstance(statement, SCOPES) for node in own_nodes(statement)]
    candidates = [node for node in inside if isinstance(node, _PARTS)]
    for expression in sorted(
        candidates, key=lambda node: len(list(ast.walk(node))), reverse=True
    ):  # stable sort: the first of several expressions of equal size
        outer = _local_names(main, expression)
        parameters = _parameters(expression, outer, {*names, *known})
        body = source([ast.Expr(expression)])
        if not parameters or not body or "\n" in body or isinstance(places[expression], ast.Expr):
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
    """Return the local variables that an expression reads. Empty: the expression cannot be moved to a helper."""
    nodes = list(ast.walk(expression))
    named = [node for node in nodes if isinstance(node, ast.Name)]
    own = {node.id for node in named if isinstance(node.ctx, ast.Store)}
    read = dict.fromkeys(node.id for node in named if isinstance(node.ctx, ast.Load))
    is_tied = own & outer or read.keys() & {*_FRAME, *helpers} or any(isinstance(node, _TIED) for node in nodes)
    return () if is_tied else tuple(name for name in read if name in outer)


def _local_names(main: ast.FunctionDef, expression: ast.expr) -> set[str]:
    """Return the local names of a function, except names that are only bound inside the expression."""
    skipped = {main, *ast.walk(expression)}
    nodes = [node for node in ast.walk(main) if node not in skipped]
    caught = {node.name for node in nodes if isinstance(node, ast.ExceptHandler) and node.name}
    return caught.union(filter(None, map(bound_name, nodes)))


def _put(parent: ast.AST, old: ast.expr, new: ast.expr) -> None:
    for field, value in ast.iter_fields(parent):
        if value is old:
            setattr(parent, field, new)
        elif isinstance(value, list):
            value[:] = [new if each is old else each for each in value]
