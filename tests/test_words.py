"""Every setting has a docstring for `--help`, and arguments are documented in the format of the API reference."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path

from collm._settings import settings_of
from collm.agents.config import ModelConfig
from collm.agents.numeric.config import NetworkConfig
from collm.algorithms import config, published
from collm.algorithms.runs.assembly.experiment import Experiment
from collm.benchmarks import commands

ROOT = Path(__file__).resolve().parent.parent
LAYERS = ("envs", "agents", "algorithms", "benchmarks")


def settings_classes() -> list[type]:
    """Dataclasses whose fields `--help` shows."""
    found = [ModelConfig, NetworkConfig, Experiment]
    names = [each.name for each in pkgutil.walk_packages(commands.__path__, f"{commands.__name__}.")]
    for module in (config, published, *map(importlib.import_module, names)):
        for name, each in inspect.getmembers(module, dataclasses.is_dataclass):
            is_own = each.__module__ == module.__name__
            found += [each] if is_own and (name.endswith("Arguments") or module.__name__ not in names) else []
    return found


def undocumented(kind: type) -> Iterator[str]:
    """Settings without a docstring, except fields that hold other settings."""
    for name, setting in settings_of(kind).items():
        is_nested = str(setting.field.type) == "Settings" or dataclasses.is_dataclass(setting.field.default_factory)
        if not setting.text and not is_nested:
            yield f"{kind.__name__}.{name}"


@dataclasses.dataclass
class Incomplete:
    documented: int = 0
    """Number of updates."""
    bare: int = 0


def test_every_setting_has_a_docstring():
    kinds = settings_classes()
    assert [name for kind in kinds for name in undocumented(kind)] == []
    names = {kind.__name__ for kind in kinds}
    assert {"TrainConfig", "MAACConfig", "CoLLMCCConfig", "TrainArguments", "EvaluateArguments"} <= names
    assert list(undocumented(Incomplete)) == ["Incomplete.bare"]


def test_an_argument_has_a_line_of_its_own():
    """Google's style has no "first, second: …"."""
    paths = [path for layer in (*LAYERS, "src/collm") for path in (ROOT / layer).rglob("*.py")]
    nodes = ((path, node) for path in paths for node in ast.walk(ast.parse(path.read_text())))
    documented = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    found = []
    for path, node in nodes:
        text = (ast.get_docstring(node) or "") if isinstance(node, documented) else ""
        arguments = re.search(r"^Args:\n((?:    .*\n?|\n)*)", text, re.MULTILINE)
        joined = re.findall(r"^    \w+, .*", arguments[1], re.MULTILINE) if arguments else []
        found += [f"{path.name}: {line.strip()}" for line in joined if re.match(r"    [\w, ]+:", line)]
    assert found == []
