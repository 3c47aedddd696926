"""The 164 problems of HumanEval: every reference solution passes, every broken one fails."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from collm.envs.coding.sandbox import Sandbox

NUM_PROBLEMS = 164
EQUAL_TO_EVERYTHING = """
class Anything:
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __hash__(self): return 0
"""
BROKEN: dict[str, Callable[[dict[str, str]], str]] = {
    "empty body": lambda problem: problem["prompt"] + "    pass\n",
    "wrong constant": lambda problem: problem["prompt"] + "    return 123456789\n",
    "exit": lambda problem: "import sys\nsys.exit(0)\n" + problem["prompt"] + "    sys.exit(0)\n",
    "equal to everything": lambda problem: EQUAL_TO_EVERYTHING + problem["prompt"] + "    return Anything()\n",
}


@pytest.fixture(scope="module")
def problems() -> list[dict[str, Any]]:
    """The problems, as published."""
    file = Path(__file__).resolve().parents[4].parent / "shared" / "data" / "humaneval" / "HumanEval.jsonl.gz"
    if not file.exists():
        pytest.skip(f"{file} is not there")
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def passed(sandbox: Sandbox, problem: dict[str, str], code: str) -> bool:
    """Whether some code passes the problem's tests."""
    report = sandbox.run_tests(code, problem["test"], problem["entry_point"], support=problem["prompt"])
    return report.all_passed


def test_every_reference_solution_passes(sandbox: Sandbox, problems: list[dict[str, str]]) -> None:
    results = {
        problem["task_id"]: passed(sandbox, problem, problem["prompt"] + problem["canonical_solution"])
        for problem in problems
    }
    assert len(results) == NUM_PROBLEMS
    assert [task for task, is_right in results.items() if not is_right] == []


@pytest.mark.parametrize(
    "name", ["equal to everything", *[pytest.param(n, marks=pytest.mark.slow) for n in list(BROKEN)[:3]]]
)
def test_every_broken_solution_fails(sandbox: Sandbox, problems: list[dict[str, str]], name: str) -> None:
    fooled = [problem["task_id"] for problem in problems if passed(sandbox, problem, BROKEN[name](problem))]
    assert len(problems) == NUM_PROBLEMS
    assert fooled == []
