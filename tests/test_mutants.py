import sys
from pathlib import Path

import pytest

if sys.version_info < (3, 11):
    tomllib = pytest.importorskip("tomli")
else:
    import tomllib


def test_tests_stand_beside_every_module_that_is_mutated(root):
    told = tomllib.loads((root / "tools" / "mutation" / "areas.toml").read_text())
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
