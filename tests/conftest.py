import os
import signal
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

# Before torch is imported: with several threads small tests are slow on a busy machine.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

from collm.envs import registry

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell ignores SIGINT in background jobs, and processes of tests would inherit this.
    signal.signal(signal.SIGINT, signal.default_int_handler)

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # PettingZoo's tests import example games that raise deprecation warnings
    import pettingzoo.test  # noqa: F401

ROOT = Path(__file__).resolve().parent.parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests marked `gpu` without a GPU."""
    marked = [item for item in items if item.get_closest_marker("gpu") is not None]
    if not marked:
        return
    import torch

    if not torch.cuda.is_available():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="torch sees no GPU"))


@pytest.fixture(scope="session", autouse=True)
def state_folder(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Runs of tests are not noted in the user's own state folder."""
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT


@pytest.fixture(scope="session")
def real_model() -> Path:
    """Folder of SmolLM2-135M-Instruct, which `make real-model` writes."""
    folder = ROOT / "models" / "SmolLM2-135M-Instruct"
    if not (folder / "model.safetensors").is_file():
        pytest.skip("there is no real model; run make real-model")
    return folder


@pytest.fixture
def clean_registry() -> Iterator[dict]:
    """Registry of environments. After the test, it is restored, with the registries of Gymnasium and PettingZoo."""
    import gymnasium
    import pettingzoo

    names = ("parallel_registry", "aec_registry")
    mirrors = [registry, gymnasium.registry, *(getattr(pettingzoo, name, {}) for name in names)]
    before = [dict(each) for each in mirrors]
    yield registry
    for each, kept in zip(mirrors, before, strict=True):
        each.clear()
        each.update(kept)
