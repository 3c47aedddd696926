"""Mutants of a module: its source with one small fault, made by cosmic-ray's operators.

Left out are mutants that run the same code (a change in an annotation, or in the `*` of a signature), that do not
compile, or that another operator makes too.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from cosmic_ray.ast import Visitor, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names


@dataclass(frozen=True)
class Mutant:
    """A module with one fault."""

    module: str  # path from the repository's root
    operator: str  # cosmic-ray's name of it
    function: str  # dotted name of what contains the fault; empty at the module's top
    line: int  # from 1
    before: str  # the line, without indentation
    after: str
    source: str  # of the whole module

    @property
    def key(self) -> str:
        """What no other mutant has, and what changes with the module."""
        return hashlib.sha256(self.source.encode()).hexdigest()[:16]


def places(source: str, excluded: str) -> list[tuple[str, int]]:
    """Where a module can be mutated: names of operators, and the number of the occurrence.

    Args:
        source: the module's text.
        excluded: regular expression of operators that are left out.
    """
    operators = {name: get_operator(name)() for name in sorted(operator_names()) if not re.search(excluded, name)}
    counter = _Counter(operators)
    counter.walk(get_ast(source))
    return [(name, occurrence) for name, count in counter.found.items() for occurrence in range(count)]


def mutants(module: str, source: str, where: Iterable[tuple[str, int]]) -> Iterator[Mutant]:
    """The mutants at these places, in their order: those that run other code than the module, each once."""
    seen = {None, _essence(source)}
    for name, occurrence in where:
        mutated = mutate_code(source, get_operator(name)(), occurrence)
        essence = _essence(mutated)
        if essence not in seen:
            seen.add(essence)
            yield _described(module, name, source, mutated)


class _Counter(Visitor):
    """Counts the places where each operator applies."""

    def __init__(self, operators: dict[str, Any]):
        self.operators = operators
        self.found: Counter[str] = Counter()

    def visit(self, node: Any) -> Any:
        for name, operator in self.operators.items():
            self.found[name] += len(list(operator.mutation_positions(node)))
        return node


def _essence(source: str) -> str | None:
    """The code that runs: without annotations, which nothing evaluates, and alike however arguments are passed.

    None: no Python.
    """
    try:
        tree = ast.parse(source)
        compile(tree, "mutant", "exec")
    except (SyntaxError, ValueError):
        return None
    for node in ast.walk(tree):
        if isinstance(node, ast.AnnAssign):
            node.annotation = ast.Constant(None)
        elif isinstance(node, ast.arg):
            node.annotation = None
        elif isinstance(node, ast.FunctionDef):
            node.returns = None
        elif isinstance(node, ast.arguments):  # the * and / between parameters are no operators
            node.args = [*node.posonlyargs, *node.args, *node.kwonlyargs]
            node.defaults += [default for default in node.kw_defaults if default is not None]
            node.posonlyargs, node.kwonlyargs, node.kw_defaults = [], [], []
    return ast.dump(tree)


def _described(module: str, operator: str, source: str, mutated: str) -> Mutant:
    before, after = source.splitlines(), mutated.splitlines()
    start = next(i for i, (old, new) in enumerate(zip(before, after, strict=False)) if old != new)
    gone = len(before) - len(after)  # a decorator is removed with its line
    new = "" if gone else after[start].strip()
    return Mutant(module, operator, _function(source, start + 1), start + 1, before[start].strip(), new, mutated)


def _function(source: str, line: int) -> str:
    names: list[str] = []
    nodes: list[ast.AST] = [ast.parse(source)]
    while nodes:
        for child in ast.iter_child_nodes(nodes.pop()):
            if isinstance(child, ast.FunctionDef | ast.ClassDef):
                first = min([child.lineno, *(decorator.lineno for decorator in child.decorator_list)])
                if first <= line <= (child.end_lineno or first):
                    names.append(child.name)
                    nodes = [child]
                    break
    return ".".join(names)
