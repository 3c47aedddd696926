"""Imports point one way: between the layers, and between the rooms of every folder; no folder is a hall."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

LAYERS = ("envs", "agents", "algorithms", "benchmarks")
ORDER = {
    "envs": (
        "spaces",
        "core data sandbox",
        "templates",
        "players writing coding games",
        "wrappers",
        "registration",
        "checks vectors views",
    ),
    "agents": (
        "config batching",
        "core",
        "encoding registry decoding",
        "scoring numeric scripted",
        "vllm",
        "language tiny",
        "loading",
        "interop",
    ),
    "algorithms": (
        "config distribution",
        "rollout",
        "published functions",
        "algorithm",
        "registry iac maac reinforce",
        "ppo",
        "learning",
        "memory",
        "runs",
    ),
    "benchmarks": (
        "arguments errors markdown",
        "cli crossplay leaderboard export doctor",
        "comparison core throughput",
        "report",
        "commands",
    ),
}
"""The rooms of each layer from the ground up: a room imports only from floors below its own."""
MAX_ROOMS = 14
MAX_FLOORS = 7
ROOT = Path(__file__).resolve().parent.parent
MODULES = sorted(path for layer in LAYERS for path in (ROOT / layer).rglob("*.py"))
FOLDERS = sorted({path.parent for path in MODULES})


def imported(path: Path) -> Iterator[str]:
    """The full names a module imports, relative ones resolved from the root; of `from . import a` also `a` itself."""
    package = path.relative_to(ROOT).parent.parts
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = ("collm", *package)[: len(package) + 2 - node.level] if node.level else ()
            name = ".".join((*above, *filter(None, [node.module])))
            yield name
            yield from (f"{name}.{alias.name}" for alias in node.names)


def names(path: Path) -> str:
    return str(path.relative_to(ROOT))


def rooms(folder: Path) -> dict[str, set[str]]:
    """The modules and folders of a folder, and which of its other rooms each imports from."""
    found: dict[str, set[str]] = {}
    package = f"collm.{'.'.join(folder.relative_to(ROOT).parts)}."
    paths = [path for path in folder.glob("*.py") if path.name != "__init__.py"]
    paths += [path for path in folder.iterdir() if any(path.rglob("*.py"))]
    inside = {path.stem for path in paths}
    for path in paths:
        modules = [path] if path.suffix == ".py" else list(path.rglob("*.py"))
        targets = {
            name.removeprefix(package).split(".")[0]
            for each in modules
            for name in imported(each)
            if name.startswith(package)
        }
        found[path.stem] = (targets & inside) - {path.stem}
    return found


def floors(imports: dict[str, set[str]]) -> int:
    """The longest chain of rooms in which each imports from the next.

    Raises:
        ValueError: if there is a circle.
    """
    heights: dict[str, int] = {}

    def height(room: str, above: tuple[str, ...] = ()) -> int:
        if room in above:
            raise ValueError(" -> ".join([*above[above.index(room) :], room]))
        if room not in heights:
            heights[room] = 1 + max((height(other, (*above, room)) for other in imports[room]), default=0)
        return heights[room]

    return max((height(room) for room in imports), default=0)


def importing(paths: Iterable[Path], is_wrong: Callable[[Path, str], bool]) -> list[str]:
    """The wrong imports of some modules."""
    return [f"{names(path)} imports {name}" for path in paths for name in imported(path) if is_wrong(path, name)]


def test_a_module_imports_only_its_own_layer_and_those_below():
    def is_above(path: Path, name: str) -> bool:
        layer = LAYERS.index(path.relative_to(ROOT).parts[0])
        return f"{name}.".startswith(tuple(f"collm.{other}." for other in LAYERS[layer + 1 :]))

    assert importing(MODULES, is_above) == []


@pytest.mark.parametrize("layer", LAYERS)
def test_inside_a_layer_rooms_import_only_from_floors_below(layer):
    order = {room: floor for floor, row in enumerate(ORDER[layer]) for room in row.split()}
    found = rooms(ROOT / layer)
    assert sorted(order) == sorted(found), "every room has a floor in ORDER"
    upward = [
        f"{room} imports {other}" for room, others in found.items() for other in others if order[other] >= order[room]
    ]
    assert upward == []


def test_a_folder_is_small_enough_to_live_in():
    found = {names(folder): rooms(folder) for folder in FOLDERS}
    assert {folder: len(each) for folder, each in found.items() if len(each) > MAX_ROOMS} == {}
    assert {folder: floors(each) for folder, each in found.items() if floors(each) > MAX_FLOORS} == {}


def test_floors_are_counted_along_the_longest_chain_and_a_circle_is_named():
    assert floors({"a": set(), "b": {"a"}, "c": {"a", "b"}, "d": set()}) == 3
    with pytest.raises(ValueError, match="a -> b -> a"):
        floors({"a": {"b"}, "b": {"a"}})


def test_a_module_is_imported_under_one_name():
    """Inside the library imports are relative, so that a bare `from envs...` fails at once."""
    found = []
    for path in MODULES:
        nodes = list(ast.walk(ast.parse(path.read_text())))
        absolute = [node.module for node in nodes if isinstance(node, ast.ImportFrom) and not node.level]
        absolute += [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
        wrong = [name for name in absolute if name and name.partition(".")[0] in ("collm", *LAYERS)]
        found += [f"{names(path)} imports {name}" for name in wrong]
    assert found == []


def test_worlds_know_nothing_of_models():
    heavy = {"torch", "transformers", "tokenizers", "wandb", "peft", "accelerate"}
    worlds = [path for path in MODULES if "envs" in path.relative_to(ROOT).parts]
    assert importing(worlds, lambda path, name: name.partition(".")[0] in heavy) == []


def test_settings_import_nothing_heavy():
    """So that a command line can show them at once."""
    heavy = {"torch", "transformers", "numpy", "gymnasium", "pettingzoo", "peft"}
    settings = [path for path in MODULES if path.name == "config.py"]
    assert importing(settings, lambda path, name: name.partition(".")[0] in heavy) == []


def test_nobody_asks_which_algorithm_s_settings_these_are():
    """What differs between algorithms they say themselves: a user's own is no special case."""
    concrete = {"IACConfig", "MAACConfig", "IPPOConfig", "MAPPOConfig", "ReinforceConfig", "MARLOOConfig"}
    asked = [
        f"{names(path)}: {ast.unparse(node)}"
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in ("isinstance", "issubclass")
        and concrete & {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
    ]
    assert asked == []
