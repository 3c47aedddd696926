"""What `make mutants` reads names what is there, as whoever moves a module or a test would not run it for hours."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

if sys.version_info < (3, 11):
    tomllib = pytest.importorskip("tomli")
else:
    import tomllib


def read(root: Path, name: str) -> dict:
    return tomllib.loads((root / "tests" / "mutation" / name).read_text())


def test_tests_stand_beside_every_module_that_is_mutated(root):
    told = read(root, "areas.toml")
    modules = {
        path.relative_to(root)
        for patterns in told["areas"].values()
        for pattern in patterns
        for path in root.glob(pattern)
        if path.name != "__init__.py"
    }
    assert all(list(root.glob(pattern)) for patterns in told["areas"].values() for pattern in patterns)
    assert {Path(name) for name in told["tests"]} <= modules
    for module in modules:
        for test in told["tests"].get(str(module), [Path("tests", module.parent, f"test_{module.name}")]):
            assert (root / test).is_file(), f"{test} beside {module}"


def test_what_was_judged_is_still_there(root):
    """A line that was rewritten is to be judged again."""
    for entry in read(root, "judged.toml")["equivalent"]:
        lines = {line.strip() for line in (root / entry["module"]).read_text().splitlines()}
        assert entry["before"] in lines and entry["after"] != entry["before"] and entry["reason"], entry
