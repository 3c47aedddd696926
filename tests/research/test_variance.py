"""The scripts of the variance study run from a clone."""

from __future__ import annotations

import importlib
import json
import math
import shutil
import subprocess
import sys

import numpy as np
import pytest


@pytest.fixture
def run(root):
    def call(*options):
        script = root / "research" / "variance" / "run.py"
        return subprocess.run([sys.executable, str(script), *map(str, options)], capture_output=True, text=True)

    return call


def test_the_committed_page_is_made_of_the_committed_cells(run, root, tmp_path):
    results = root / "research" / "variance" / "results"
    for cell in results.glob("*.json"):
        shutil.copy(cell, tmp_path)
    done = run("table", "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "README.md").read_text() == (results / "README.md").read_text()
    assert (tmp_path / "samples.png").stat().st_size > 5000


@pytest.mark.slow
def test_a_cell_is_measured(run, tmp_path):
    small = "--rewards terminal --horizons 2 --known 12 --groups 2 --group-size 2 --traces 0 1"
    done = run("run", *small.split(), "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    (file,) = tmp_path.glob("*.json")
    rows = json.loads(file.read_text())["rows"]
    assert {row["critic"] for row in rows} >= {"none", "own", "joint", "ideal table"}
    assert all(row["gradient_variance"] >= 0 for row in rows)


def test_a_mistake_is_one_line(run):
    done = run("run", "--groups", 1)
    assert done.returncode == 1 and "Traceback" not in done.stderr and "--groups 1" in done.stderr


def test_the_noise_scale_of_two_gradients_by_hand(root, monkeypatch):
    monkeypatch.syspath_prepend(str(root / "research" / "variance"))
    noise_scale = importlib.import_module("credit_noise").noise_scale
    # (2, 1) and (2, -1): squared norm of the mean 3, mean square 5, so the variance is 2.
    assert noise_scale(np.array([[5.0, 3.0], [3.0, 5.0]]), 30.0) == pytest.approx(20)
    assert noise_scale(np.array([[1.0, -1.0], [-1.0, 1.0]]), 30.0) == math.inf
