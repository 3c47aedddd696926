"""Imports point downwards, between layers and between the parts of a layer; folders stay small."""

import ast
from collections.abc import Callable, Iterable, Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

LAYERS = ("envs", "agents", "algorithms", "benchmarks")
ORDER = {  # modules and folders of each layer, the lowest first. They import only from lower lines
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
        "chat_template registry decoding",
        "encoding",
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
        "cli crossplay sharing doctor",
        "comparison core throughput",
        "report",
        "commands",
    ),
}
MAX_DEPTH = 7
ROOT = Path(__file__).resolve().parent.parent
MODULES = sorted(path for layer in LAYERS for path in (ROOT / layer).rglob("*.py"))
FOLDERS = sorted({path.parent for path in MODULES})


def imported(path: Path) -> Iterator[str]:
    """Return the full names of a module's imports; for `from . import a`, also the full name of `a`."""
    package = path.relative_to(ROOT).parent.parts
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = ("collm", *package)[: len(package) + 2 - node.level] if node.level else ()
            name = ".".join((*above, *filter(None, [node.module])))
            yield name
            yield from (f"{name}.{alias.name}" for alias in node.names)


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def parts(folder: Path) -> dict[str, set[str]]:
    """Return a dict of the modules and folders in a folder -> other modules and folders that they import."""
    package = f"collm.{'.'.join(folder.relative_to(ROOT).parts)}."
    paths = [path for path in folder.glob("*.py") if path.name != "__init__.py"]
    paths += [path for path in folder.iterdir() if any(path.rglob("*.py"))]
    found: dict[str, set[str]] = {path.stem: set() for path in paths}
    for path in paths:
        for module in [path] if path.suffix == ".py" else path.rglob("*.py"):
            names = (name.removeprefix(package).split(".")[0] for name in imported(module) if name.startswith(package))
            found[path.stem] |= set(names) & found.keys() - {path.stem}
    return found


def depth(imports: dict[str, set[str]]) -> int:
    """Return the length of the longest chain of imports. Circular imports are an error."""
    depths: dict[str, int] = {}
    for part in TopologicalSorter(imports).static_order():
        depths[part] = 1 + max((depths[other] for other in imports[part]), default=0)
    return max(depths.values(), default=0)


def importing(paths: Iterable[Path], is_wrong: Callable[[Path, str], bool]) -> list[str]:
    return [f"{name_of(path)} imports {name}" for path in paths for name in imported(path) if is_wrong(path, name)]


def test_a_module_imports_only_its_own_layer_and_lower_ones():
    def is_above(path: Path, name: str) -> bool:
        layer = LAYERS.index(path.relative_to(ROOT).parts[0])
        return f"{name}.".startswith(tuple(f"collm.{other}." for other in LAYERS[layer + 1 :]))

    assert importing(MODULES, is_above) == []


@pytest.mark.parametrize("layer", LAYERS)
def test_inside_a_layer_imports_point_downwards(layer):
    order = {part: number for number, line in enumerate(ORDER[layer]) for part in line.split()}
    found = parts(ROOT / layer)
    assert sorted(order) == sorted(found)
    upward = [f"{part} imports {other}" for part in found for other in found[part] if order[other] >= order[part]]
    assert upward == []


def test_folders_are_flat_and_have_no_circular_imports():
    found = {name_of(folder): parts(folder) for folder in FOLDERS}
    assert {folder: depth(each) for folder, each in found.items() if depth(each) > MAX_DEPTH} == {}
    assert depth({"a": set(), "b": {"a"}, "c": {"a", "b"}, "d": set()}) == 3
    with pytest.raises(CycleError):
        depth({"a": {"b"}, "b": {"a"}})


def test_imports_inside_the_library_are_relative():
    found = []
    for path in MODULES:
        nodes = list(ast.walk(ast.parse(path.read_text())))
        absolute = [node.module for node in nodes if isinstance(node, ast.ImportFrom) and not node.level]
        absolute += [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
        wrong = [name for name in absolute if name and name.partition(".")[0] in ("collm", *LAYERS)]
        found += [f"{name_of(path)} imports {name}" for name in wrong]
    assert found == []


def test_environments_and_settings_import_no_heavy_packages():
    models = {"torch", "transformers", "tokenizers", "wandb", "peft", "accelerate"}
    envs = [path for path in MODULES if "envs" in path.relative_to(ROOT).parts]
    settings = [path for path in MODULES if path.name == "config.py"]
    heavy = {"numpy", "gymnasium", "pettingzoo", *models}
    assert importing(envs, lambda path, name: name.partition(".")[0] in models) == []
    assert importing(settings, lambda path, name: name.partition(".")[0] in heavy) == []


def test_no_code_depends_on_the_class_of_an_algorithms_settings():
    concrete = {"IACConfig", "MAACConfig", "IPPOConfig", "MAPPOConfig", "ReinforceConfig", "MARLOOConfig"}
    found = [
        f"{name_of(path)}: {ast.unparse(node)}"
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in ("isinstance", "issubclass")
        and concrete & {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
    ]
    assert found == []
