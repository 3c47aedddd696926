from pathlib import Path

import pytest
from fakes import random_llama
from vllm_server import StubServer


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("model")
    random_llama().save_pretrained(where)
    return where


@pytest.fixture
def stub(folder):
    server = StubServer(folder)
    yield server
    server.die()
