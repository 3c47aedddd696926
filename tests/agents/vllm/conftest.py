"""What tests of vLLM servers share."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes import random_llama


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model's folder, which servers and learners load."""
    where = tmp_path_factory.mktemp("model")
    random_llama().save_pretrained(where)
    return where
