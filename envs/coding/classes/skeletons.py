"""A class that programmers complete, out of a row of ClassEval: who writes which methods, and how they merge."""

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
    """A class whose methods are divided."""

    id: str
    name: str
    """Name of the class."""
    skeleton: str
    """Source of the class with methods to be written; those that it gives in full are kept."""
    shares: tuple[tuple[str, ...], ...]
    """Methods by programmer: of two the first has those whose only parameter is `self`, and the second all others."""
    tests: str
    """Source with unittest classes."""
    solution: str
    """Source of the whole class; empty if the data has none."""

    @property
    def methods(self) -> tuple[str, ...]:
        """All methods that are to be written."""
        return tuple(name for share in self.shares for name in share)


@dataclass(frozen=True)
class Delivery:
    """What one programmer wrote."""

    methods: Mapping[str, ast.FunctionDef] = field(default_factory=dict)
    """By name, as a rule without those that were left empty."""
    around: tuple[ast.stmt, ...] = ()
    """Imports, constants and functions outside of the class that the methods need."""
    broken: str = ""
    """Definitions that do not parse."""


def task_of(row: Mapping[str, Any], num_programmers: int = 2, *, needs_both: bool = False) -> ClassTask:
    """The task in a row.

    More than two programmers divide the methods evenly, those that take only `self` first. With `needs_both` so do two
    programmers, if one of them would have no method.

    Columns: "skeleton", "test", "class_name"; optionally "import_statement" (a list or a text), "solution_code".

    Raises:
        ValueError: if the skeleton or the tests do not parse, or no method is to be written.
    """
    place = f"task {row['id']!r}"
    name = str(row["class_name"])
    imports = row.get("import_statement") or ()
    lines = [imports] if isinstance(imports, str) else list(imports)
    skeleton = _with_imports(str(row["skeleton"]), lines)
    found = class_named(parsed(skeleton) or [], name)
    if found is None:
        raise ValueError(f"{place}: its skeleton must be Python with a class {name!r}; repair the row")
    if not parsed(str(row["test"])):
        raise ValueError(f"{place}: its tests must be Python; repair the row")
    wanted = [node for node in _methods(found) if is_empty(node)]
    if not wanted:
        raise ValueError(f"{place}: its skeleton leaves no method to be written; empty those that are the task")
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
    """The last top-level class of this name."""
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
    """Whether a function has no body but a docstring, `pass`, `...` or `raise NotImplementedError`."""
    for part in node.body:
        match part:
            case ast.Pass() | ast.Expr(value=ast.Constant()):
                continue
            case ast.Raise(exc=ast.Name(id="NotImplementedError") | ast.Call(func=ast.Name(id="NotImplementedError"))):
                continue
        return False
    return True


def delivery_of(task: ClassTask, code: Code, *, keeps_empty: bool = False) -> Delivery:
    """What is in a programmer's code: methods in a class of the task's name, or bare ones.

    A method that is not asked for is kept if a method that is asked for may need it; `__init__` is the skeleton's.

    Args:
        task: the class.
        code: the programmer's.
        keeps_empty: whether a method without more than a placeholder is one.
    """
    found: dict[str, ast.FunctionDef] = {}
    for node in code.statements:
        if isinstance(node, ast.ClassDef) and node.name == task.name:
            found |= {part.name: part for part in _methods(node)}
        elif isinstance(node, ast.FunctionDef) and (node.name in task.methods or _has_self(node)):
            found[node.name] = node
    methods = {name: node for name, node in found.items() if keeps_empty or not is_empty(node)}
    rest = [node for node in code.statements if node not in found.values()]
    around = defining_statements(rest, list(methods.values()), foreign={task.name, *methods})
    return Delivery(methods, around, code.broken)


def divided(task: ClassTask, deliveries: Sequence[Delivery]) -> list[Delivery]:
    """The deliveries with the methods that count if all programmers are needed.

    A method that is asked for counts if its own programmer wrote it, and only this one. A further method counts if
    another part of its programmer's code names it and no other programmer's code does; a further function, if no other
    programmer's code names it. Otherwise the others' methods could hand all their work to it.
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
        around=tuple(node for node in own.around if _is_import(node) or not names_bound_by([node]) & foreign),
    )


def _names_in(delivery: Delivery, without: str = "") -> set[str]:
    """Names and attributes in a programmer's code, a method of this name aside."""
    roots = (*(node for name, node in delivery.methods.items() if name != without), *delivery.around)
    nodes = [part for root in roots for part in ast.walk(root)]
    return {part.attr for part in nodes if isinstance(part, ast.Attribute)} | {
        part.id for part in nodes if isinstance(part, ast.Name)
    }


def _is_import(node: ast.stmt) -> bool:
    return isinstance(node, ast.Import | ast.ImportFrom)


def with_helpers(task: ClassTask, solved: ast.ClassDef, own: Sequence[str]) -> list[ast.stmt]:
    """A programmer's methods in a solution, with those that they need and that the skeleton does not have."""
    skeleton = class_named(parsed(task.skeleton) or [], task.name)
    listed = {node.name for node in _methods(skeleton)} if skeleton else set()
    kept = {node.name for node in _methods(solved) if node.name in own}
    is_growing = bool(kept)
    while is_growing:
        used = {
            part.attr
            for node in _methods(solved)
            if node.name in kept
            for part in ast.walk(node)
            if isinstance(part, ast.Attribute)
        }
        more = {node.name for node in _methods(solved) if node.name in used - listed} - kept
        kept |= more
        is_growing = bool(more)
    return [node for node in _methods(solved) if node.name in kept]


def has_self(node: ast.stmt) -> bool:
    """Whether a statement is a function whose first parameter is `self`."""
    return isinstance(node, ast.FunctionDef) and _has_self(node)


def _has_self(node: ast.FunctionDef) -> bool:
    return bool(node.args.args) and node.args.args[0].arg == "self"


def merged(task: ClassTask, deliveries: Sequence[Delivery]) -> str | None:
    """Source of the class with all programmers' methods; None if it does not parse.

    A method that several wrote is its owner's. Methods that nobody wrote are left out, so that no test passes by
    calling an empty one.
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
