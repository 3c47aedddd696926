"""HumanEval: every reference solution passes, and every broken one fails."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from collm.envs.sandbox import Limits, Sandbox

EQUAL_TO_EVERYTHING = """
class Anything:
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __hash__(self): return 0
"""
OFF_BY_ONE = """
def off(value):
    if isinstance(value, bool): return not value
    if isinstance(value, (int, float)): return value + 1
    if isinstance(value, (str, list, tuple)): return value + value[:1] if value else type(value)([1]) or "x"
    if isinstance(value, dict): return {**value, "one": 1}
    return 1
right = {name}
def {name}(*arguments): return off(right(*arguments))
"""
DRAWING = """
import random, string
def {name}(*arguments):
    text = "".join(random.choice(string.ascii_lowercase) for i in range(random.randint(10, 20)))
    return text if isinstance(arguments[0], str) else random.randint(0, 1000) + random.randint(0, 1000)
"""


def after(code: str) -> Callable[[dict[str, str]], str]:
    """The problem's solution, followed by code that may replace it."""
    keys = ("prompt", "canonical_solution")
    return lambda row: "\n".join([*(row[key] for key in keys), code.replace("{name}", row["entry_point"])])


BROKEN: dict[str, Callable[[dict[str, str]], str]] = {
    "equal to everything": after(EQUAL_TO_EVERYTHING + "def {name}(*arguments): return Anything()"),
    "empty body": after("def {name}(*arguments): pass"),
    "constant": after("def {name}(*arguments): return 123456789"),
    "identity": after("def {name}(first, *others): return first"),
    "StopIteration": after("def {name}(*arguments): raise StopIteration"),
    "sys.exit": after("import sys\nsys.exit(0)"),
    "os._exit": after("import os\ndef {name}(*arguments): os._exit(0)"),
    "off by one": after(OFF_BY_ONE),
    "drawing the tests' inputs": after(DRAWING),
    "sleeping": after("import time\ndef {name}(*arguments): time.sleep(99)"),
}


@pytest.fixture(scope="module")
def problems(shared_data: Callable[[str], Path]) -> list[dict[str, Any]]:
    with gzip.open(shared_data("humaneval/HumanEval.jsonl.gz"), "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def passed(sandbox: Sandbox, problem: dict[str, str], code: str) -> bool:
    limits = Limits(cpu_s=0.3, wall_s=0.3) if "time.sleep(99)" in code else None
    report = sandbox.run_tests(code, problem["test"], problem["entry_point"], support=problem["prompt"], limits=limits)
    return report.all_passed


def test_every_reference_solution_passes(sandbox: Sandbox, problems: list[dict[str, str]]) -> None:
    solved = [each for each in problems if passed(sandbox, each, each["prompt"] + each["canonical_solution"])]
    assert len(problems) == 164 and solved == problems


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.slow) for name in BROKEN])
def test_every_broken_solution_fails(sandbox: Sandbox, problems: list[dict[str, str]], name: str) -> None:
    fooled = [problem["task_id"] for problem in problems if passed(sandbox, problem, BROKEN[name](problem))]
    assert len(problems) == 164 and fooled == []
