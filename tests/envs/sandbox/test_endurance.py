"""Runs leave no process, descriptor or mount behind, and verdicts do not depend on the load of the machine."""

import gc
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from collm.envs.sandbox import Case, Limits, Sandbox

WORK = """
import time
def f(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end: pass
    return seconds
"""


def descendants() -> list[str]:
    seen = [str(os.getpid())]
    for pid in seen:
        try:
            for task in Path(f"/proc/{pid}/task").iterdir():
                seen += (task / "children").read_text().split()
        except OSError:
            continue
    return seen[1:]


def belongings() -> tuple[list[str], int, int]:
    gc.collect()
    return descendants(), len(os.listdir("/proc/self/fd")), len(Path("/proc/self/mounts").read_text().splitlines())


def run_many(sandbox: Sandbox, num_runs: int) -> None:
    codes = [
        "def f(x): return x",
        "def f(x): return x + 1",
        "def f(x): return 1 / 0",
        "import os\ndef f(x): os._exit(3)",
        "import ctypes\ndef f(x): ctypes.string_at(0)",
        "import os\nL = [os.pipe() for _ in range(10)]\nprint('x' * 100000)\ndef f(x): return 'y' * 50000",
        "import os\nwhile True: os.write(4, b'x' * 65536)",
    ]
    for number in range(num_runs):
        verdict = sandbox.check(codes[number % len(codes)], "f", [Case((number,), number)])
        assert verdict.all_passed == (number % len(codes) == 0)
        if number % 50 == 0:
            assert sandbox.run_tests(codes[0], "assert f(3) == 3", "f").all_passed


@pytest.mark.parametrize("tier", ["A", "B"])
@pytest.mark.parametrize("num_runs", [20, pytest.param(1000, marks=pytest.mark.slow)])
def test_runs_leave_no_process_descriptor_or_mount(sandbox_of, tier: str, num_runs: int) -> None:
    sandbox_of(tier)
    before = belongings()
    with Sandbox(1, isolation=tier) as sandbox:
        run_many(sandbox, 20)
        early = belongings()
        run_many(sandbox, num_runs)
        assert belongings()[1:] == early[1:]
        assert len(descendants()) == len(early[0])
    assert belongings() == before


@pytest.fixture
def load() -> Iterator[None]:
    busy = [subprocess.Popen([sys.executable, "-I", "-S", "-c", "while True: pass"]) for _ in range(8)]
    time.sleep(1)
    yield
    for process in busy:
        process.kill()
        process.wait()


@pytest.mark.slow
def test_a_verdict_does_not_depend_on_the_load_of_the_machine(sandbox: Sandbox, request: pytest.FixtureRequest) -> None:
    limits = Limits(cpu_s=1.0, wall_s=120.0)
    seconds = [0.1, 0.3, 0.5, 0.5, 0.5, 1.5, 3.0]  # up to half of the limit, and past it

    def verdicts() -> list[tuple[bool, str]]:
        found = [sandbox.check(WORK, "f", [Case((each,), each)], limits=limits) for each in seconds]
        return [(verdict.all_passed, verdict.report.status) for verdict in found]

    idle = verdicts()
    request.getfixturevalue("load")
    assert verdicts() == idle == [(True, "ok")] * 5 + [(False, "cpu_limit")] * 2
