"""Fixtures of the tests of environments."""

import pytest

from collm.envs.sandbox import SandboxUnavailable, shared_sandbox


@pytest.fixture(scope="session")
def sandbox():
    """The sandbox, on machines that offer one."""
    shared = shared_sandbox()
    try:
        shared.start()
    except SandboxUnavailable as error:
        pytest.skip(f"no isolation here: {error}")
    return shared
