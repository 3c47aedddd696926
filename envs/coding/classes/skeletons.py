"""Tasks of ClassEval: division of a class into methods per programmer, and merging of the programmers' code."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from ..extraction import Code
from ..syntax import defining_statements, names_bound_by, parsed, source


@dataclass(frozen=True)
class ClassTask:
    """Task of an episode: a class whose methods are divided among the programmers."""

    id: str
    name: str
    skeleton: str  # source of the class with empty methods, which the agents write
    shares: tuple[tuple[str, ...], ...]  # names of the methods that each programmer must write
    tests: str  # source of unittest classes
    solution: str  # source of the complete class. Empty: the data has none.

    @property
    def methods(self) -> tuple[str, ...]:
        return tuple(name for share in self.shares for name in share)


@dataclass(frozen=True)
class Delivery:
    """Code that one programmer wrote."""

    methods: Mapping[str, ast.FunctionDef] = field(default_factory=dict)  # by name, usually without empty methods
    around: tuple[ast.stmt, ...] = ()  # imports, constants and functions outside of the class that the methods need
    broken: str = ""  # text of definitions that do not parse


def task_of(row: Mapping[str, Any], num_programmers: int = 2, *, needs_both: bool = False) -> ClassTask:
    """Convert a row of the data to a `ClassTask`.

    Of two programmers, the first writes the methods whose only parameter is `self`, and the second writes the others.
    Larger teams divide the methods evenly in this order. With `needs_both`, two programmers also divide the methods
    evenly if one of them would have no method.

    Columns: "skeleton", "test", "class_name"; optional: "import_statement" (a list or a text), "solution_code".

    Raises:
        ValueError: if the skeleton or the tests do not parse, or the skeleton has no empty method.
    """
    place = f"task {row['id']!r}"
    name = str(row["class_name"])
    imports = row.get("import_statement") or ()
    lines = [imports] if isinstance(imports, str) else list(imports)
    skeleton = _with_imports(str(row["skeleton"]), lines)
    found = class_named(parsed(skeleton) or [], name)
    if found is None:
        raise ValueError(f"{place}: the skeleton must be Python code with a class {name!r}; repair the row")
    if not parsed(str(row["test"])):
        raise ValueError(f"{place}: the tests must be Python code; repair the row")
    wanted = [node for node in _methods(found) if is_empty(node)]
    if not wanted:
        raise ValueError(f"{place}: the skeleton has no empty method; empty the methods that agents must write")
    return ClassTask(
        id=str(row["id"]),
        name=name,
        skeleton=skeleton,
        shares=_shares(wanted, num_programmers, needs_both=needs_both),
        tests="\n".join([*lines, str(row["test"])]),
        solution=_with_imports(str(row["solution_code"]), lines) if row.get("solution_code") else "",
    )


def _shares(wanted: Sequence[ast.FunctionDef], count: int, *, needs_both: bool) -> tuple[tuple[str, ...], ...]:
    alone = tuple(node.name for node in wanted if _takes_only_self(node))
    others = tuple(node.name for node in wanted if not _takes_only_self(node))
    if count == 2 and not (needs_both and (not alone or not others)):
        return alone, others
    names = alone + others
    size, larger = divmod(len(names), count)
    cuts = [size * seat + min(seat, larger) for seat in range(count + 1)]
    return tuple(names[start:end] for start, end in pairwise(cuts))


def _with_imports(code: str, imports: Sequence[str]) -> str:
    missing = [line for line in imports if line.strip() and line.strip() not in code]
    return "\n".join([*missing, code])


def class_named(statements: Sequence[ast.stmt], name: str) -> ast.ClassDef | None:
    found = [node for node in statements if isinstance(node, ast.ClassDef) and node.name == name]
    return found[-1] if found else None


def _methods(node: ast.ClassDef) -> list[ast.FunctionDef]:
    return [part for part in node.body if isinstance(part, ast.FunctionDef) and part.name != "__init__"]


def _takes_only_self(node: ast.FunctionDef) -> bool:
    arguments = node.args
    positional = [*arguments.posonlyargs, *arguments.args]
    is_alone = len(positional) == 1 and not (arguments.kwonlyargs or arguments.vararg or arguments.kwarg)
    return is_alone and positional[0].arg == "self"


def is_empty(node: ast.FunctionDef) -> bool:
    """Return True if the body of a function has only a docstring, `pass`, `...` or `raise NotImplementedError`."""
    for part in node.body:
        match part:
            case ast.Pass() | ast.Expr(value=ast.Constant()):
                continue
            case ast.Raise(exc=ast.Name(id="NotImplementedError") | ast.Call(func=ast.Name(id="NotImplementedError"))):
                continue
        return False
    return True


def delivery_of(task: ClassTask, code: Code, *, keeps_empty: bool = False) -> Delivery:
    """Extract the methods from a programmer's code, inside or outside of a class with the task's name.

    Extra methods are also kept, because the required methods may need them. `__init__` is ignored. With `keeps_empty`,
    methods with only a placeholder, such as `pass`, are also kept.
    """
    found: dict[str, ast.FunctionDef] = {}
    for node in code.statements:
        if isinstance(node, ast.ClassDef) and node.name == task.name:
            found |= {part.name: part for part in _methods(node)}
        elif isinstance(node, ast.FunctionDef) and (node.name in task.methods or has_self(node)):
            found[node.name] = node
    methods = {name: node for name, node in found.items() if keeps_empty or not is_empty(node)}
    rest = [node for node in code.statements if node not in found.values()]
    around = defining_statements(rest, list(methods.values()), foreign={task.name, *methods})
    return Delivery(methods, around, code.broken)


def divided(task: ClassTask, deliveries: Sequence[Delivery]) -> list[Delivery]:
    """Return the part of each programmer's code that is scored with `needs_both`.

    A required method is kept if the programmer to whom it was assigned is its only author. An extra method is kept if
    its name is used in other code of its author and in no code of other programmers. An extra function is kept if no
    code of other programmers uses its name. Otherwise these programmers could leave work to the author.
    """
    return [_own_part(task, seat, deliveries) for seat in range(len(deliveries))]


def _own_part(task: ClassTask, seat: int, deliveries: Sequence[Delivery]) -> Delivery:
    own = deliveries[seat]
    others = [delivery for number, delivery in enumerate(deliveries) if number != seat]
    foreign = {name for other in others for name in _names_in(other) - {*other.methods, *names_bound_by(other.around)}}

    def is_counted(name: str) -> bool:
        if name in task.methods:
            return name in task.shares[seat] and not any(name in other.methods for other in others)
        return name not in foreign and name in _names_in(own, without=name)

    return replace(
        own,
        methods={name: node for name, node in own.methods.items() if is_counted(name)},
        around=tuple(
            node
            for node in own.around
            if isinstance(node, ast.Import | ast.ImportFrom) or not names_bound_by([node]) & foreign
        ),
    )


def _names_in(delivery: Delivery, without: str = "") -> set[str]:
    """Return the names of variables and attributes in a programmer's code, except in the method `without`."""
    roots = (*(node for name, node in delivery.methods.items() if name != without), *delivery.around)
    nodes = [part for root in roots for part in ast.walk(root)]
    return {part.attr for part in nodes if isinstance(part, ast.Attribute)} | {
        part.id for part in nodes if isinstance(part, ast.Name)
    }


def with_helpers(task: ClassTask, solved: ast.ClassDef, own: Sequence[str]) -> list[ast.stmt]:
    """Return the methods `own` of the solved class, and the methods that they need and that the skeleton lacks."""
    skeleton = class_named(parsed(task.skeleton) or [], task.name)
    listed = {node.name for node in _methods(skeleton)} if skeleton else set()
    methods = _methods(solved)
    kept, more = set[str](), {node.name for node in methods if node.name in own}
    while more:
        kept |= more
        parts = (part for node in methods if node.name in kept for part in ast.walk(node))
        used = {part.attr for part in parts if isinstance(part, ast.Attribute)}
        more = {node.name for node in methods if node.name in used - listed} - kept
    return [node for node in methods if node.name in kept]


def has_self(node: ast.stmt) -> bool:
    return isinstance(node, ast.FunctionDef) and bool(node.args.args) and node.args.args[0].arg == "self"


def merged(task: ClassTask, deliveries: Sequence[Delivery]) -> str | None:
    """Return the source of the class with all programmers' methods, or None if it does not parse.

    If several programmers wrote a method, the version of the programmer to whom it was assigned is used. Missing
    methods are left out, so that no test passes by calling an empty method.
    """
    statements = parsed(task.skeleton) or []
    target = class_named(statements, task.name)
    if target is None or any(delivery.broken for delivery in deliveries):
        return None
    methods = {name: node for delivery in deliveries for name, node in delivery.methods.items()}
    for own, delivery in zip(task.shares, deliveries, strict=True):
        methods |= {name: delivery.methods[name] for name in own if name in delivery.methods}
    target.body = [
        part for part in target.body if not (isinstance(part, ast.FunctionDef) and part.name in task.methods)
    ]
    target.body += methods.values()
    target.body = target.body or [ast.Pass()]
    return source([*(node for delivery in deliveries for node in delivery.around), *statements])
