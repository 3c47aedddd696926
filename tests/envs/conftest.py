"""Fixtures of the tests of environments."""

import json

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


@pytest.fixture
def jsonl(tmp_path):
    """A function that writes rows to a file and returns its path."""

    def write(*rows):
        path = tmp_path / "tasks.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return str(path)

    return write
