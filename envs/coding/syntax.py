"""Functions on syntax trees of Python code that models wrote. They may be recursive, because `MAX_DEPTH` is small."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Collection, Iterable, Iterator, Sequence

from ..._lazy import parse

MAX_DEPTH = 80  # `ast.unparse` uses up to 6 stack frames per level, and Python allows 1,000 by default
SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


def parsed(text: str) -> list[ast.stmt] | None:
    """Parse a text to statements. Return None if it does not parse, or if its tree is deeper than `MAX_DEPTH`."""
    try:
        module = parse(text)
    except (SyntaxError, ValueError, MemoryError, RecursionError):  # ValueError: null bytes, surrogates, huge numbers
        return None
    return module.body if _is_shallow(module) else None


def _is_shallow(module: ast.Module) -> bool:
    level: list[ast.AST] = [module]  # a loop, because recursion would fail on a deep tree
    for _ in range(MAX_DEPTH):
        level = [child for node in level for child in ast.iter_child_nodes(node)]
        if not level:
            return True
    return False


def source(statements: Sequence[ast.stmt]) -> str | None:
    """Return the statements as source text, or None if they cannot be converted."""
    try:
        return ast.unparse(ast.Module(list(statements), []))
    except (ValueError, RecursionError):  # an f-string in an old Python version; a stack that is almost full
        return None


def function_named(statements: Iterable[ast.stmt], name: str) -> ast.FunctionDef | None:
    """Return the last top-level function of this name."""
    found = [node for node in statements if isinstance(node, ast.FunctionDef) and node.name == name]
    return found[-1] if found else None


def needed_statements(
    statements: Sequence[ast.stmt], name: str, foreign: Collection[str] = (), also: Collection[str] = ()
) -> tuple[ast.stmt, ...]:
    """Return the statements that define a name, and the statements that these need. Empty: the name is not defined.

    Statements that define a name in `foreign` are left out. Statements that define a name in `also` are returned too.
    """
    found = _definers(statements, {name, *also}, foreign)
    return tuple(found) if any(name in _bound_names(node) for node in found) else ()


def defining_statements(
    statements: Sequence[ast.stmt], users: Iterable[ast.AST], foreign: Collection[str] = ()
) -> tuple[ast.stmt, ...]:
    """Return the statements that define the names that the code `users` reads, and the statements that these need."""
    return tuple(_definers(statements, {name for node in users for name in _read_names(node)}, foreign))


def _definers(statements: Sequence[ast.stmt], names: Collection[str], foreign: Collection[str]) -> list[ast.stmt]:
    definers = [
        (node, bound)
        for node in statements
        if (bound := _bound_names(node))
        and not bound & set(foreign)
        and not (isinstance(node, ast.ImportFrom) and node.module == "__future__")
    ]
    wanted, kept = set(names), dict[int, ast.stmt]()
    num_kept = -1
    while num_kept < len(kept):
        num_kept = len(kept)
        for i, (node, bound) in enumerate(definers):
            if i not in kept and ("*" in bound or bound & wanted):
                kept[i] = node
                wanted |= _read_names(node)
    return [kept[i] for i in sorted(kept)]


def returns_value(function: ast.FunctionDef) -> bool:
    """Return True if the function has a `return` with a value, not counting inner functions."""
    return any(isinstance(node, ast.Return) and node.value is not None for node in own_nodes(function))


def uses_function(statements: Iterable[ast.stmt], name: str) -> bool:
    """Return True if the statements call a function by its name, or pass it as an argument."""
    return any(_references(node, name) for node in statements)


def is_thin_wrapper(function: ast.FunctionDef, *names: str) -> bool:
    """Return True if the function only passes its arguments to functions in `names` and returns their values."""
    is_wrapper = any(_references(function, name) for name in names)
    return is_wrapper and all(_is_passing_on(node, names) for node in _flat(function.body))


def ignores_result(statements: Iterable[ast.stmt], name: str) -> bool:
    """Return True if the statements call a function and never use its return value."""
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
    """Return the nodes of a statement that read a global name. Empty: the statement itself binds the name."""
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
    """Return True for a name, a constant, or a call of a function in `names` whose arguments are such values."""
    if isinstance(value, ast.Call):
        given = [*value.args, *(keyword.value for keyword in value.keywords)]
        bare = [item.value if isinstance(item, ast.Starred) else item for item in given]
        is_name = isinstance(value.func, ast.Name) and value.func.id in names
        return is_name and all(isinstance(item, ast.Name | ast.Constant) for item in bare)
    return isinstance(value, ast.Name | ast.Constant)


def _flat(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements. An `if` with a constant condition, such as `if True:`, is replaced by its content."""
    for node in body:
        if isinstance(node, ast.If) and isinstance(node.test, ast.Constant):
            yield from _flat([*node.body, *node.orelse])
        else:
            yield node


def own_nodes(scope: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a scope, such as a function, without the nodes of inner scopes."""
    waiting = list(ast.iter_child_nodes(scope))
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, SCOPES):
            waiting += ast.iter_child_nodes(node)


def _bound_names(node: ast.stmt) -> set[str]:
    """Return the names that a top-level statement defines. A star import defines "*"."""
    is_main_guard = isinstance(node, ast.If) and "__name__" in _read_names(node.test)
    if isinstance(node, ast.Expr) or is_main_guard:
        return set()
    if isinstance(node, SCOPES):
        return {bound_name(node)}
    return {name for part in (node, *own_nodes(node)) if (name := bound_name(part))}


def bound_name(node: ast.AST) -> str:
    """Return the name that a single node binds, or an empty string."""
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return name
        case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
            return name
        case ast.alias(name=name, asname=asname):
            return asname or name.partition(".")[0]
    return ""


def _read_names(node: ast.AST) -> set[str]:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load)}


def names_bound_by(statements: Iterable[ast.stmt]) -> set[str]:
    return {name for node in statements for name in _bound_names(node)}


def free_names(statements: Sequence[ast.stmt]) -> set[str]:
    """Return the names that top-level statements read but do not define, without builtins."""
    nodes = [part for node in statements for part in ast.walk(node)]
    deleted = {part.id for part in nodes if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Del)}
    read = {name for node in statements for name in _read_names(node)}
    return read - deleted - set(map(bound_name, nodes)) - set(vars(builtins))


def rename_inside(statements: Iterable[ast.stmt], name: str, new: str) -> None:
    """Rename all uses and definitions of a name, in place."""
    for node in statements:
        for part in ast.walk(node):
            if isinstance(part, ast.Name) and part.id == name:
                part.id = new
            elif isinstance(part, ast.arg) and part.arg == name:
                part.arg = new
            elif isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and part.name == name:
                part.name = new


def returned_through(node: ast.stmt, function: str, name: str) -> ast.stmt:
    """Change `return x` in the named function to `return name(x)`, in place. Other statements are unchanged."""
    if not isinstance(node, ast.FunctionDef) or node.name != function:
        return node
    for part in own_nodes(node):
        if isinstance(part, ast.Return) and part.value is not None:
            part.value = ast.Call(ast.Name(name, ast.Load()), [part.value], [])
    return node
