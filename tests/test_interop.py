"""The runner of other libraries' trainings reports what it saw, and fails where a return did not rise."""

from __future__ import annotations

import importlib.util
import sys

import pytest


@pytest.fixture
def interop(root, tmp_path, monkeypatch):
    """The runner, with examples that are made up, in this very Python."""
    spec = importlib.util.spec_from_file_location("interop_run", root / "interop" / "run.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "interop_run", module)  # dataclasses look their module up
    spec.loader.exec_module(module)
    (tmp_path / "examples").mkdir()
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "ENVIRONMENTS", tmp_path)
    monkeypatch.setattr(module, "environment", lambda *wanted: sys.executable)
    return module


@pytest.mark.parametrize(
    ("code", "has_risen"),
    [
        ("print('loading'); print('x PPO on a/B-v0: 0.250 -> 0.500')", True),
        ("print('x PPO on a/B-v0: -0.100 -> -0.200')", False),
        ("print('x PPO on a/B-v0: 0.250 -> 0.500'); raise SystemExit(3)", False),
        ("raise RuntimeError('no')", False),
    ],
)
def test_a_training_counts_if_its_return_rose_and_it_ended_well(interop, tmp_path, code, has_risen):
    (tmp_path / "examples" / "x.py").write_text(code)
    assert interop.run(interop.Trial("x", "x.py")).has_risen is has_risen


def test_a_training_without_a_result_names_its_log(interop, tmp_path):
    (tmp_path / "examples" / "x.py").write_text("raise SystemExit(3)")
    assert interop.run(interop.Trial("x", "x.py")).text == "exit status 3 without a result; see x.log"


def test_every_library_has_its_requirements_and_its_example(root, interop):
    for trial in interop.TRIALS:
        assert (root / "interop" / f"{trial.library}.txt").is_file()
        assert (root / "examples" / trial.script).is_file()


def test_every_requirement_names_one_version(root):
    for file in (root / "interop").glob("*.txt"):
        lines = [line for line in file.read_text().splitlines() if line and not line.startswith("#")]
        assert lines and all("==" in line for line in lines), file
