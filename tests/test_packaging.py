"""Packages and data files of the wheel."""

from __future__ import annotations

import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

import pytest

if sys.version_info < (3, 11):
    tomllib = pytest.importorskip("tomli")
else:
    import tomllib

LAYERS = ("envs", "agents", "algorithms", "benchmarks")


@pytest.fixture
def settings(root: Path) -> dict:
    return tomllib.loads((root / "pyproject.toml").read_text())["tool"]["setuptools"]


def folders(root: Path) -> list[Path]:
    """Folders of the four layers that are packages."""
    return sorted(path.parent for layer in LAYERS for path in (root / layer).rglob("__init__.py"))


def test_every_folder_is_among_the_packages_of_a_build(root, monkeypatch):
    pytest.importorskip("setuptools")
    from distutils.core import run_setup  # that of setuptools

    monkeypatch.chdir(root)
    found = run_setup("setup.py", stop_after="init").packages
    names = [f"collm.{'.'.join(folder.relative_to(root).parts)}" for folder in folders(root)]
    assert sorted(found) == sorted(["collm", *names])


@pytest.mark.parametrize("layer", LAYERS)
def test_a_layer_is_linked_typed_and_has_only_packages(root, layer):
    link = root / "src" / "collm" / layer
    assert link.is_symlink() and link.resolve() == root / layer
    assert (root / layer / "py.typed").exists()
    stray = {path.parent for path in (root / layer).rglob("*.py")} - set(folders(root))
    assert not stray, f"without an __init__.py these are missing from the wheel: {stray}"


def test_every_data_file_is_in_the_wheel(root, settings):
    patterns = settings["package-data"]["*"]
    left_out = [
        path.relative_to(folder)
        for folder in folders(root)
        for path in folder.rglob("*")
        if path.is_file()
        and path.suffix not in (".py", ".pyc")
        and "results" not in path.relative_to(folder).parts  # read in the repository only
        and not any((parent / "__init__.py").exists() for parent in path.parents if folder in parent.parents)
        and not any(fnmatch(str(path.relative_to(folder)), pattern) for pattern in patterns)
    ]
    assert left_out == []


def test_no_python_package_lies_in_the_root_or_in_tests(root):
    assert not (root / "__init__.py").exists()
    assert not list((root / "tests").rglob("__init__.py"))


def test_no_module_is_known_by_two_names():
    code = f"import sys, collm.envs, collm.benchmarks; print([name for name in {LAYERS} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert found.strip() == "[]"
