"""Python source as a syntax tree, and questions about code that the tree answers.

Source written by a model is data. `parsed` returns None for source that is not Python, and for a tree deeper than
`MAX_DEPTH`, so functions on trees may be recursive.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Collection, Iterable, Iterator, Sequence

from ..._syntax import parse

MAX_DEPTH = 80  # of a syntax tree: `ast.unparse` takes up to 6 frames per node, and Python allows 1,000 by default
SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


def parsed(text: str) -> list[ast.stmt] | None:
    """The statements of a text; None if the text is not Python or its tree is deeper than `MAX_DEPTH`."""
    try:
        module = parse(text)
    except (SyntaxError, ValueError, MemoryError, RecursionError):  # ValueError: a null, a surrogate, a huge number
        return None
    return module.body if _is_shallow(module) else None


def _is_shallow(module: ast.Module) -> bool:
    """Whether a tree is at most `MAX_DEPTH` deep; level by level, because recursion would fail on a deep tree."""
    level: list[ast.AST] = [module]
    for _ in range(MAX_DEPTH):
        level = [child for node in level for child in ast.iter_child_nodes(node)]
        if not level:
            return True
    return False


def source(statements: Sequence[ast.stmt]) -> str | None:
    """The statements as text; None if they cannot be written out.

    Older Pythons cannot write out every f-string. Too little stack is left only far down in the caller's own.
    """
    try:
        return ast.unparse(ast.Module(list(statements), []))
    except (ValueError, RecursionError):
        return None


def function_named(statements: Iterable[ast.stmt], name: str) -> ast.FunctionDef | None:
    """The last top-level function of this name."""
    found = [node for node in statements if isinstance(node, ast.FunctionDef) and node.name == name]
    return found[-1] if found else None


def needed_statements(
    statements: Sequence[ast.stmt], name: str, foreign: Collection[str] = (), also: Collection[str] = ()
) -> tuple[ast.stmt, ...]:
    """The statements that a definition needs, itself among them, in their order.

    Examples of use, prints and tests around it are left behind, and so is whatever defines a foreign name.

    Args:
        statements: at top level.
        name: what is wanted; if nothing defines it, nothing is needed.
        foreign: names that somebody else defines.
        also: further names that are wanted where anything defines them.
    """
    found = _definers(statements, {name, *also}, foreign)
    return tuple(found) if any(name in _bound_names(node) for node in found) else ()


def defining_statements(
    statements: Sequence[ast.stmt], users: Iterable[ast.AST], foreign: Collection[str] = ()
) -> tuple[ast.stmt, ...]:
    """The statements that some code, given elsewhere, needs; see `needed_statements`."""
    return tuple(_definers(statements, {name for node in users for name in _read_names(node)}, foreign))


def _definers(statements: Sequence[ast.stmt], names: Collection[str], foreign: Collection[str]) -> list[ast.stmt]:
    definers = [
        (node, bound)
        for node in statements
        if (bound := _bound_names(node)) and not bound & set(foreign) and not _is_future_import(node)
    ]
    wanted, kept = set(names), set()
    is_growing = True
    while is_growing:
        is_growing = False
        for i, (node, bound) in enumerate(definers):
            if i not in kept and ("*" in bound or bound & wanted):
                kept.add(i)
                wanted |= _read_names(node)
                is_growing = True
    return [definers[i][0] for i in sorted(kept)]


def returns_value(function: ast.FunctionDef) -> bool:
    """Whether the function itself, not one inside it, returns anything."""
    return any(isinstance(node, ast.Return) and node.value is not None for node in own_nodes(function))


def uses_function(statements: Iterable[ast.stmt], name: str) -> bool:
    """Whether the statements call a function by its name, or pass it on to be called."""
    return any(_references(node, name) for node in statements)


def is_thin_wrapper(function: ast.FunctionDef, *names: str) -> bool:
    """Whether the function only hands its arguments to others of these names, and hands back what they return."""
    is_wrapper = any(_references(function, name) for name in names)
    return is_wrapper and all(_is_passing_on(node, names) for node in _flat(function.body))


def ignores_result(statements: Iterable[ast.stmt], name: str) -> bool:
    """Whether the statements call a function, and none of the values that it returns is read."""
    is_called = False
    for scope in statements:
        parents = {child: node for node in ast.walk(scope) for child in ast.iter_child_nodes(node)}
        read = _read_names(scope)
        for reference in _references(scope, name):
            is_called = True
            call = parents[reference]
            if not (isinstance(call, ast.Call) and call.func is reference) or _is_read(call, parents[call], read):
                return False
    return is_called


def _is_read(call: ast.Call, parent: ast.AST, read: Collection[str]) -> bool:
    if isinstance(parent, ast.Expr):
        return False
    if isinstance(parent, ast.Assign):
        targets = parent.targets
    elif isinstance(parent, ast.AnnAssign):
        targets = [parent.target]
    else:
        return True
    return any(
        node.id in read if isinstance(node, ast.Name) else isinstance(node, ast.Attribute | ast.Subscript)
        for target in targets
        for node in ast.walk(target)
    )


def _references(scope: ast.stmt, name: str) -> list[ast.Name]:
    """Where a scope reads this global name; nowhere if it binds the name itself."""
    found = []
    for node in ast.walk(scope):
        if isinstance(node, ast.Name) and node.id == name:
            if not isinstance(node.ctx, ast.Load):
                return []
            found.append(node)
        is_bound = (
            (isinstance(node, ast.arg) and node.arg == name)
            or (isinstance(node, ast.alias) and (node.asname or node.name) == name)
            or (isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and node.name == name)
        )
        if is_bound:
            return []
    return found


def _is_passing_on(node: ast.stmt, names: Collection[str]) -> bool:
    match node:
        case (
            ast.Assign(targets=[ast.Name()], value=value) | ast.AnnAssign(target=ast.Name(), value=ast.expr() as value)
        ):
            return _is_plain(value, names)
        case ast.Return(value=ast.expr() as value) | ast.Expr(value=value):
            return _is_plain(value, names)
        case ast.Pass() | ast.Return() | ast.AnnAssign() | ast.Global():
            return True
    return False


def _is_plain(value: ast.expr, names: Collection[str]) -> bool:
    """Whether the value is a name or a constant, or a call of one of the functions with nothing else."""
    if isinstance(value, ast.Call):
        given = [*value.args, *(keyword.value for keyword in value.keywords)]
        bare = [item.value if isinstance(item, ast.Starred) else item for item in given]
        is_name = isinstance(value.func, ast.Name) and value.func.id in names
        return is_name and all(isinstance(item, ast.Name | ast.Constant) for item in bare)
    return isinstance(value, ast.Name | ast.Constant)


def _flat(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements, with those under a condition that is a constant in its place."""
    for node in body:
        if isinstance(node, ast.If) and isinstance(node.test, ast.Constant):
            yield from _flat([*node.body, *node.orelse])
        else:
            yield node


def own_nodes(scope: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a scope without those of the scopes inside it."""
    waiting = list(ast.iter_child_nodes(scope))
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, SCOPES):
            waiting += ast.iter_child_nodes(node)


def _bound_names(node: ast.stmt) -> set[str]:
    """The names that a top-level statement defines; "*" for those of a star import."""
    if isinstance(node, ast.Expr) or _is_main_guard(node):
        return set()
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {node.name}
    names = set()
    for part in (node, *own_nodes(node)):
        if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(part.name)
        elif isinstance(part, ast.alias):
            names.add(part.asname or part.name.partition(".")[0])
        elif isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
            names.add(part.id)
    return names


def _read_names(node: ast.AST) -> set[str]:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load)}


def _is_main_guard(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and "__name__" in _read_names(node.test)


def _is_future_import(node: ast.stmt) -> bool:
    return isinstance(node, ast.ImportFrom) and node.module == "__future__"


def names_bound_by(statements: Iterable[ast.stmt]) -> set[str]:
    """The names that top-level statements define."""
    return {name for node in statements for name in _bound_names(node)}


def free_names(statements: Sequence[ast.stmt]) -> set[str]:
    """The names that top-level statements read and nothing in them defines, builtins aside."""
    bound = set(vars(builtins))
    for node in statements:
        for part in ast.walk(node):
            if isinstance(part, ast.Name) and not isinstance(part.ctx, ast.Load):
                bound.add(part.id)
            elif isinstance(part, ast.arg):
                bound.add(part.arg)
            elif isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                bound.add(part.name)
            elif isinstance(part, ast.alias):
                bound.add(part.asname or part.name.partition(".")[0])
    return {name for node in statements for name in _read_names(node)} - bound


def rename_inside(statements: Iterable[ast.stmt], name: str, new: str) -> None:
    """Rename what statements define themselves under a name that is somebody else's."""
    for node in statements:
        for part in ast.walk(node):
            if isinstance(part, ast.Name) and part.id == name:
                part.id = new
            elif isinstance(part, ast.arg) and part.arg == name:
                part.arg = new
            elif isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and part.name == name:
                part.name = new


def returned_through(node: ast.stmt, function: str, name: str) -> ast.stmt:
    """The statement; if it is the function of that name, with every value it returns handed through another."""
    if not isinstance(node, ast.FunctionDef) or node.name != function:
        return node
    for part in own_nodes(node):
        if isinstance(part, ast.Return) and part.value is not None:
            part.value = ast.Call(ast.Name(name, ast.Load()), [part.value], [])
    return node
