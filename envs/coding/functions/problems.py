"""Conversion of rows of the data (HumanEval, MBPP, built-in) to programming problems for a team."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from ..syntax import free_names, function_named, names_bound_by, parsed, rename_inside, returned_through, source
from .division import divided, identity

HELPER_FUNCTION = "aux"


def helper_functions(count: int) -> tuple[str, ...]:
    return (HELPER_FUNCTION,) if count == 1 else tuple(f"{HELPER_FUNCTION}_{place}" for place in range(1, count + 1))


@dataclass(frozen=True)
class Problem:
    """Programming problem of a team, with its tests."""

    id: str
    prompt: str  # task as in the data: the head of a function with its docstring, or a text
    entry_point: str  # name of the main function
    head: str  # `def name(parameters)`, or only the name if the parameters are unknown
    description: str  # task in words
    preamble: str  # imports and functions in the prompt, which are added to the agents' programs and to the tests
    tests: str  # source with `check(candidate)` or with top-level assertions. Empty: all tests are generated.
    reference: tuple[str, ...] | None  # code of each helper, then of main. None: the data has no solution.
    support: str  # code that runs before the tests: the preamble, and imports of the solution that the tests use
    functions: tuple[str, ...] = ()  # other functions of the solution that the tests call
    classes: tuple[str, ...] = ()  # classes of the solution that the tests use
    inputs: tuple[Mapping[str, Any], ...] | None = None  # descriptions of arguments for generated tests (see `drawn`)
    helpers: tuple[str, ...] = (HELPER_FUNCTION,)  # names of the helpers' functions


def problem_of(row: Mapping[str, Any], num_helpers: int = 1, *, needs_both: bool = False) -> Problem:
    """Convert a row of the data to a `Problem`.

    Columns: "prompt"; "entry_point" and "test" (HumanEval), or "test_list" and optionally "test_imports" or
    "test_setup_code" (MBPP, where the code and the tests determine the function's name). Optional: "inputs"; and for
    the reference solution "aux" and "main", "canonical_solution", or "code".

    With one helper, the reference solution is the row's "aux" and "main". Without these, the helper returns its
    argument, and the main function passes its result through the helper. With several helpers, or with `needs_both`,
    each helper computes a part of the solution (see `division`).

    Raises:
        ValueError: if the row has no test, the function's name is missing, or the tests do not parse.
    """
    prompt = str(row["prompt"])
    solution = str(row.get("main") or row.get("code") or "")
    if row.get("canonical_solution"):
        solution = prompt + str(row["canonical_solution"])
    tests = _tests(row)
    entry_point = str(row.get("entry_point") or _tested_name(tests, solution))
    if not tests and not row.get("inputs"):
        raise ValueError(f"task {row['id']!r} has no column 'test' or 'test_list'; map it with columns={{'test': …}}")
    if parsed(tests) is None:
        raise ValueError(f"the tests of task {row['id']!r} are not Python; repair the row")
    if not entry_point.isidentifier():
        raise ValueError(f"task {row['id']!r} needs the main function's name in 'entry_point', got {entry_point!r}")
    given = parsed(prompt) or parsed(f"{prompt.rstrip()}\n    pass") or []
    stub = function_named(given, entry_point)
    signature = stub or function_named(parsed(solution) or [], entry_point)
    preamble = (source([node for node in given if node is not stub]) or "") if stub else ""
    solved = parsed(solution) or []
    wanted = free_names(parsed(tests) or []) - names_bound_by(parsed(preamble) or []) - {entry_point, "candidate"}
    imports = [node for node in solved if isinstance(node, ast.Import | ast.ImportFrom)]
    lent: list[ast.stmt] = [node for node in imports if names_bound_by([node]) & wanted]
    return Problem(
        id=str(row["id"]),
        prompt=prompt,
        entry_point=entry_point,
        head=f"def {entry_point}({ast.unparse(signature.args)})" if signature else entry_point,
        description=(stub and ast.get_docstring(stub)) or prompt,
        preamble=preamble,
        support="\n".join(part for part in (preamble, source(lent)) if part),
        functions=tuple(node.name for node in solved if isinstance(node, ast.FunctionDef) and node.name in wanted),
        classes=tuple(node.name for node in solved if isinstance(node, ast.ClassDef) and node.name in wanted),
        tests=tests,
        reference=_reference(row, entry_point, solution, helper_functions(num_helpers), needs_both=needs_both),
        inputs=tuple(row["inputs"]) if row.get("inputs") else None,
        helpers=helper_functions(num_helpers),
    )


def _tests(row: Mapping[str, Any]) -> str:
    if row.get("test"):
        return str(row["test"])
    imports = row.get("test_imports") or row.get("test_setup_code") or ()
    lines = [imports] if isinstance(imports, str) else list(imports)
    return "\n".join([*lines, *row["test_list"]]) if row.get("test_list") else ""


def _tested_name(tests: str, solution: str) -> str:
    """Return the first function that the tests call and the solution defines. Without a solution: no builtin."""
    defined = [node.name for node in parsed(solution) or [] if isinstance(node, ast.FunctionDef)]
    called = [
        node.func.id
        for statement in parsed(tests) or []
        for node in ast.walk(statement)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    ]
    known = [name for name in called if (name in defined if defined else name not in vars(builtins))]
    return known[0] if known else ""


def _reference(
    row: Mapping[str, Any], entry_point: str, solution: str, helpers: tuple[str, ...], *, needs_both: bool
) -> tuple[str, ...] | None:
    """Return the code of each helper and of the main programmer. None: the row has no usable solution."""
    own = (str(row["aux"]), str(row["main"])) if row.get("aux") and row.get("main") else None
    if own and len(helpers) == 1:
        return own
    statements = parsed(solution)
    if not statements or not function_named(statements, entry_point):
        return None
    if not own:
        for name in helpers:
            rename_inside(statements, name, f"inner_{name}")
        if len(helpers) == 1 and not needs_both:
            changed = source([returned_through(node, entry_point, helpers[0]) for node in statements])
            return (identity(helpers[0]), changed) if changed else None
        return divided(statements, entry_point, helpers)
    given = parsed(own[0]) or []
    for part in (given, statements):
        rename_inside(part, HELPER_FUNCTION, helpers[0])
    first = source(given)
    rest = divided(statements, entry_point, helpers[1:], known=helpers[:1])
    return (first, *rest) if first and rest else None


def shown_assertions(tests: str, entry_point: str) -> list[tuple[int, str]]:
    """Return (line number, text) of assertions outside of loops. In the text, `entry_point` replaces `candidate`."""
    nodes: Sequence[ast.stmt] = parsed(tests) or []
    check = function_named(nodes, "check")
    found = []
    for node in [*nodes, *(check.body if check else ())]:
        if isinstance(node, ast.Assert) and not isinstance(node.test, ast.Constant):
            line = node.lineno
            for part in ast.walk(node):
                if isinstance(part, ast.Name) and part.id == "candidate":
                    part.id = entry_point
            found.append((line, ast.unparse(node)))
    return found


Arguments = tuple[Any, ...]
_MAX_DRAWS = 50  # samples per test


def drawn_arguments(parts: Sequence[Mapping[str, Any]], rng: Random, count: int) -> tuple[Arguments, ...]:
    """Sample the arguments of up to `count` different calls. Descriptions with too few values give fewer calls."""
    calls: dict[str, Arguments] = {}
    for _ in range(_MAX_DRAWS * count):
        arguments = tuple(drawn(part, rng) for part in parts)
        calls.setdefault(repr(arguments), arguments)
        if len(calls) == count:
            break
    return tuple(calls.values())


def drawn(part: Mapping[str, Any], rng: Random) -> Any:
    """Sample a value from its description, such as {"int": [0, 9]}. Raise ValueError for an unknown description."""
    match part:
        case {"int": [low, high]}:
            return rng.randint(low, high)
        case {"float": [low, high, digits]}:
            return round(rng.uniform(low, high), digits)
        case {"bool": _}:
            return rng.random() < 0.5
        case {"choice": [*values]}:
            return rng.choice(values)
        case {"text": str(alphabet), "length": [least, most]}:
            return "".join(rng.choice(alphabet) for _ in range(rng.randint(least, most)))
        case {"list": inner, "length": [least, most]}:
            return [drawn(inner, rng) for _ in range(rng.randint(least, most))]
        case {"fixed": [*inner]}:
            return [drawn(each, rng) for each in inner]
        case {"dict": [key, value], "length": [least, most]}:
            return {drawn(key, rng): drawn(value, rng) for _ in range(rng.randint(least, most))}
    raise ValueError(f"{part} in 'inputs' must have one of the forms in collm.envs.coding.functions.problems.drawn")
