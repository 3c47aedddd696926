"""Settings explain themselves in `--help`, and docstrings and pages say "per" for a rate or a share."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from collm.agents.config import ModelConfig
from collm.agents.numeric.config import NetworkConfig
from collm.algorithms import config, published
from collm.algorithms.runs.assembly.experiment import Experiment
from collm.benchmarks import commands

ROOT = Path(__file__).resolve().parent.parent
LAYERS = ("envs", "agents", "algorithms", "benchmarks")

# Words that open a genitive without its noun, a clause without its head, or a sentence whose subject stands elsewhere.
OPENERS = set(
    "of that which whose what whether how where who when by for in after as if added so it they its their".split()
)
COUNTS = "seconds|ms|tokens|nats|episodes|steps|rows|cells|phrases|commands|parts|bytes|things|at most \\d+"
SINGLES = (
    "adapter|call|channel|command|completion|copy|critic|dictionary|entry|episode|folder|group|learner|lesson|letter"
    "|line|model|noun|number|object|policy|process|prompt|ratio|row|rule|run|seed|server|step|thing|thread|threshold"
    "|token|turn|value|word"
)
WHOLES = (
    "agent|builder|call|cell|channel|completion|copy|core|environment|episode|evaluation|file|function|game|group|line"
    "|method|module|player|policy|prompt|row|run|second|seed|sequence|step|task|token|track|turn|update|word|worker"
    "|writer"
)
DISTRIBUTIVE = re.compile(
    rf"\b(?:{COUNTS}|turns(?= a CPU)|(?:one|an?) (?:[\w-]+ )?(?:{SINGLES})) an? (?:CPU )?(?:{WHOLES})\b"
    r"(?! (?:can|is|may|must)\b)",  # "the cells a worker may probe" is a clause
    re.IGNORECASE,
)
"""The distributive "one call a policy", in place of "one call per policy"."""


def settings_classes() -> list[type]:
    """Every dataclass whose fields `--help` shows."""
    found = [ModelConfig, NetworkConfig, Experiment]
    for module in (config, published, *command_modules()):
        classes = (
            each for _, each in inspect.getmembers(module, inspect.isclass) if each.__module__ == module.__name__
        )
        is_command = module.__name__.startswith(f"{commands.__name__}.")
        found += [
            each
            for each in classes
            if dataclasses.is_dataclass(each) and (each.__name__.endswith("Arguments") or not is_command)
        ]
    return found


def command_modules() -> list[ModuleType]:
    found = pkgutil.walk_packages(commands.__path__, f"{commands.__name__}.")
    return [importlib.import_module(each.name) for each in found]


def field_docstrings(kind: type) -> dict[str, str]:
    """The string behind each field that a class declares before any of its bases does; "" where there is none."""
    inherited = {name for base in kind.__mro__[1:] for name in vars(base).get("__annotations__", {})}
    (body,) = [
        node.body
        for node in ast.walk(ast.parse(inspect.getsource(inspect.getmodule(kind))))
        if isinstance(node, ast.ClassDef) and node.name == kind.__name__
    ]
    found = {}
    for node, follower in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id not in inherited:
            found[node.target.id] = plain(text_of(follower))
    return found


def text_of(node: ast.stmt | None) -> str:
    value = node.value if isinstance(node, ast.Expr) else None
    return value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else ""


def plain(text: str) -> str:
    return " ".join(text.split())


def faults(docstring: str) -> list[str]:
    """What the rule for a setting's docstring has against this one."""
    if not docstring:
        return ["is empty"]
    found = []
    first = re.match(r"\w*", docstring)[0]
    if not re.match(r'[A-Z"`]', docstring):
        found.append("begins with neither a capital letter nor a value")
    if first.lower() in OPENERS:
        found.append(f"begins with {first!r}, not with a noun or a verb")
    if not docstring.endswith("."):
        found.append("does not end with a period")
    return found + [f"says {each[0]!r}, not 'per'" for each in DISTRIBUTIVE.finditer(docstring)]


def setting_faults(kind: type) -> dict[str, list[str]]:
    """Faults by field. A field that holds other settings needs no docstring: help shows their own."""
    nested = {
        each.name
        for each in dataclasses.fields(kind)
        if str(each.type) == "Settings" or dataclasses.is_dataclass(each.default_factory)
    }
    return {
        f"{kind.__name__}.{name}": faults(docstring)
        for name, docstring in field_docstrings(kind).items()
        if faults(docstring) and not (name in nested and not docstring)
    }


@dataclasses.dataclass
class Riddles:
    """Settings that break every rule."""

    empty: int = 0
    genitive: int = 0
    """Of the adapters."""
    clause: int = 0
    """That each of them plays."""
    pronoun: int = 0
    """It is the last."""
    small: int = 0
    """number of updates."""
    distributive: int = 0
    """A folder an agent."""
    broken: int = 0
    """Budget in nats
    a token."""
    endless: int = 0
    """Number of updates"""
    sound: int = 0
    """Number of updates per run, and a folder. An agent has one."""
    value: int = 0
    """"tiny" or a folder."""


def test_the_rule_for_settings_finds_every_kind_of_fault():
    found = setting_faults(Riddles)
    wrong = ("empty", "genitive", "clause", "pronoun", "small", "distributive", "broken", "endless")
    assert {name.partition(".")[2]: len(each) for name, each in found.items()} == dict.fromkeys(wrong, 1)


def test_every_class_of_settings_is_read():
    names = {kind.__name__ for kind in settings_classes()}
    assert {"TrainConfig", "MAACConfig", "CoLLMCCConfig", "TrainArguments", "EvaluateArguments"} <= names
    assert field_docstrings(config.PPODefaults) == {}  # other defaults, the same settings
    assert set(field_docstrings(config.IACConfig)) == {"use_separate_critic"}


@pytest.mark.parametrize("kind", settings_classes(), ids=lambda kind: kind.__name__)
def test_a_setting_explains_itself_without_its_neighbours(kind):
    found = {name: each for name, each in setting_faults(kind).items()}
    assert found == {}


def docstrings(tree: ast.Module, name: str) -> Iterator[tuple[str, str]]:
    """The docstrings of a module and of its public classes, functions and methods, by dotted name."""
    yield name, ast.get_docstring(tree) or ""
    yield from _of_members(tree, name)


def _of_members(node: Any, name: str) -> Iterator[tuple[str, str]]:
    for child in node.body:
        if isinstance(child, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and not child.name.startswith("_"):
            yield f"{name}.{child.name}", ast.get_docstring(child) or ""
            if isinstance(child, ast.ClassDef):
                yield from _of_members(child, f"{name}.{child.name}")


def distributives(text: str) -> list[str]:
    return [each[0] for each in DISTRIBUTIVE.finditer(plain(text))]


def dotted(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


MODULES = sorted(path for layer in LAYERS for path in (ROOT / layer).rglob("*.py"))
PAGES = sorted(str(path.relative_to(ROOT)) for path in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")))


def test_a_distributive_is_found_across_lines_and_in_a_method():
    many = 'class Many:\n    """A folder\n    an agent."""\n    def rate(self):\n        """Nats a token."""'
    code = f'"""One call a policy."""\n{many}'
    found = {name: distributives(text) for name, text in docstrings(ast.parse(code), "m")}
    assert found == {"m": ["One call a policy"], "m.Many": ["A folder an agent"], "m.Many.rate": ["Nats a token"]}
    assert distributives("8 nats a token; a model per agent; a word, run a task; cells a worker may see") == [
        "nats a token"
    ]


@pytest.mark.parametrize("path", MODULES, ids=dotted)
def test_a_docstring_says_per(path):
    found = {name: distributives(text) for name, text in docstrings(ast.parse(path.read_text()), dotted(path))}
    assert {name: each for name, each in found.items() if each} == {}


@pytest.mark.parametrize("page", PAGES)
def test_a_page_says_per(page):
    prose = re.sub(r"(?ms)^```.*?^```", "", (ROOT / page).read_text())
    assert distributives(prose) == []


def test_an_argument_has_a_line_of_its_own():
    """Google's style, which the API reference is made from, knows no "first, second: …"."""
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
