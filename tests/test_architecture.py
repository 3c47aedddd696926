"""Imports point one way: envs <- agents <- algorithms <- benchmarks."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

LAYERS = ("envs", "agents", "algorithms", "benchmarks")
ROOT = Path(__file__).resolve().parent.parent
MODULES = sorted(path for layer in LAYERS for path in (ROOT / layer).rglob("*.py"))


def imported(path: Path) -> Iterator[str]:
    """The full names a module imports, relative ones resolved from the root."""
    package = path.relative_to(ROOT).parent.parts
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = ("collm", *package)[: len(package) + 2 - node.level] if node.level else ()
            yield ".".join((*above, node.module or ""))


def names(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", MODULES, ids=names)
def test_a_module_imports_only_its_own_layer_and_those_below(path):
    layer = LAYERS.index(path.relative_to(ROOT).parts[0])
    above = [
        name for name in imported(path) for other in LAYERS[layer + 1 :] if f"{name}.".startswith(f"collm.{other}.")
    ]
    assert above == []


@pytest.mark.parametrize("path", MODULES, ids=names)
def test_a_module_is_imported_under_one_name(path):
    """Inside the library imports are relative, so that a bare `from envs...` fails at once."""
    tree = ast.parse(path.read_text())
    absolute = [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and not node.level]
    absolute += [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    assert [name for name in absolute if name and name.partition(".")[0] in ("collm", *LAYERS)] == []


@pytest.mark.parametrize("path", [path for path in MODULES if "envs" in path.relative_to(ROOT).parts], ids=names)
def test_worlds_know_nothing_of_models(path):
    heavy = {"torch", "transformers", "tokenizers", "wandb", "peft", "accelerate"}
    assert [name for name in imported(path) if name.partition(".")[0] in heavy] == []
