"""The scripts that made files of the package still run on it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from collm.agents.tiny import TINY_DIRECTORY

SCRIPTS = ("tiny/make.py", "learn_forms.py", "real_model.py")


def run(root, script, *options):
    return subprocess.run(
        [sys.executable, str(root / "tools" / script), *map(str, options)], capture_output=True, text=True
    )


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_shows_its_help(root, script):
    done = run(root, script, "--help")
    assert done.returncode == 0 and "usage:" in done.stdout, done.stderr


def test_a_complete_real_model_is_not_fetched_again(root, tmp_path):
    names = ("config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")
    for name in names:
        (tmp_path / name).touch()
    done = run(root, "real_model.py", "--out", tmp_path)
    assert done.returncode == 0 and "is complete" in done.stdout, done.stderr
    assert all((tmp_path / name).stat().st_size == 0 for name in names)


def test_the_recipe_makes_a_model_with_the_tokenizer_that_ships(root, tmp_path):
    few = "--recall-steps 1 --recall-batch 2 --task-steps 1 --task-batch 2".split()
    done = run(root, "tiny/make.py", "--out", tmp_path / "model", *few)
    assert done.returncode == 0, done.stderr
    made = (tmp_path / "model" / "tokenizer.json").read_text()
    assert json.loads(made) == json.loads((TINY_DIRECTORY / "tokenizer.json").read_text())
    again = run(root, "tiny/make.py", "--out", tmp_path / "model", *few)
    assert again.returncode == 1 and "--out" in again.stderr
