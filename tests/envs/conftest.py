"""Fixtures of the tests of environments."""

from collections.abc import Callable
from pathlib import Path

import pytest

from collm.envs.sandbox import SandboxUnavailable, shared_sandbox


@pytest.fixture(scope="session")
def shared_data() -> Callable[[str], Path]:
    """Paths of files that are not in the repository. Skips the test if a file is missing."""

    def found(name: str) -> Path:
        path = Path(__file__).parents[3] / "shared/data" / name
        if not path.exists():
            pytest.skip(f"{path} is not here")
        return path

    return found


@pytest.fixture(scope="session")
def sandbox():
    """The sandbox, on machines that offer one."""
    shared = shared_sandbox()
    try:
        shared.start()
    except SandboxUnavailable as error:
        pytest.skip(f"no isolation here: {error}")
    return shared
