"""Decorator of tests that compute logged metrics by hand, for `test_every_logged_metric_has_a_case_by_hand`."""

import ast
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

Test = TypeVar("Test", bound=Callable[..., None])


def case(*names: str) -> Callable[[Test], Test]:
    """Mark a test that computes the metrics `names` by hand. `*` matches one part of a name between slashes."""
    return lambda test: test


def cases(folder: Path) -> dict[str, list[str]]:
    """Return a dict metric -> names of the tests in a folder that `case` marks."""
    found: dict[str, list[str]] = {}
    for path in sorted(folder.rglob("test_*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                for mark in node.decorator_list:
                    if isinstance(mark, ast.Call) and isinstance(mark.func, ast.Name) and mark.func.id == "case":
                        for name in mark.args:
                            found.setdefault(ast.literal_eval(name), []).append(node.name)
    return found
