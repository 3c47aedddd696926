"""The interface of the sandbox: values, errors, settings, ownership, threads, forks and restarts."""

import asyncio
import copy
import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from collm.envs.sandbox import AsyncSandbox, Case, Limits, Sandbox, SandboxError, SandboxUnavailable, isolation
from collm.envs.sandbox.sandbox import shared_sandbox
from collm.envs.sandbox.workers import run as run_module

SQUARE = "def f(x):\n    return x * x"


def test_values_verdicts_exceptions_and_programs_by_hand(sandbox: Sandbox) -> None:
    code = "def f(a, b=1, *, c=0):\n    print('called', a)\n    return {(a, b): [a / b, {c}], 'text': 'é\\n'}"
    report = sandbox.call(code, "f", [(3, 2), (5,)], keywords={"c": 7})
    assert report.status == "ok" and report.failure is None and report.is_isolated
    assert report.values == ({(3, 2): [1.5, {7}], "text": "é\n"}, {(5, 1): [5.0, {7}], "text": "é\n"})
    assert report.stdout == "called 3\ncalled 5\n"
    assert 0 < report.cpu_s < 1
    cases = [Case((10,), accepts=lambda value: value in (2, 5)), Case((9,), accepts=lambda value: value == 2)]
    verdict = sandbox.check("def f(n):\n    return 5 if n == 10 else 3", "f", cases)
    assert verdict.passed == (True, False) and verdict.fraction == 0.5 and not verdict.all_passed
    report = sandbox.call("def f(x):\n    y = x\n    return 1 / y", "f", [(0,), (2,)])
    assert str(report.outcomes[0].failure) == "ZeroDivisionError: division by zero (line 3)"
    assert not report.outcomes[0].has_returned
    assert report.values == (None, 0.5)
    assert sandbox.call("x = (1", "f", [()]).failure.kind == "SyntaxError"
    assert sandbox.call("x = 1", "f", [()]).failure.kind == "AttributeError"
    program = "import sys\nif __name__ == '__main__':\n    print(sum(map(int, sys.stdin)))\n"
    program += "    sys.stdout.buffer.write(b'!')"
    assert sandbox.run_program(program, "1\n2\n").stdout == "3\n!"
    assert sandbox.run_program("import sys\nsys.exit(0)").outcomes[0].has_returned
    failed = sandbox.run_program("import sys\nsys.stderr.write('bad')\nsys.exit(3)")
    assert failed.stderr == "bad" and failed.outcomes[0].failure.kind == "SystemExit"


def test_calls_of_a_run_see_the_ones_before_and_runs_of_one_seed_are_equal(sandbox: Sandbox) -> None:
    code = "seen = []\ndef f(x):\n    seen.append(x)\n    return list(seen)"
    assert sandbox.call(code, "f", [(1,), (2,)]).values == ([1], [1, 2])
    assert sandbox.call(code, "f", [(3,)]).values == ([3],)
    code = "import random\ndef f():\n    return [random.random(), hash('text'), list({'a', 'b', 'c', 'd'})]"
    first, again, other = (sandbox.call(code, "f", [()], seed=seed).values for seed in (5, 5, 6))
    assert first == again and first[0][0] != other[0][0] and first[0][1:] == other[0][1:]
    assert sandbox.call(code, "f", [()]).values == sandbox.call(code, "f", [()]).values


PROGRAMS = {
    "asyncio": "import asyncio\nasync def g(x): return await asyncio.sleep(0, x)\ndef f(x): return asyncio.run(g(x))",
    "dataclass": "from dataclasses import dataclass\n@dataclass\nclass P:\n    x: 'int'\ndef f(x): return P(x).x",
    "future": (
        "from __future__ import annotations\nfrom typing import NamedTuple\nclass P(NamedTuple):\n    x: int\n"
        "def f(x): return P(x).x"
    ),
    "modules": (
        "import datetime, decimal, fractions, statistics, hashlib, json, uuid, zlib, csv, sqlite3\n"
        "def f(x): return json.loads(json.dumps(x))"
    ),
    "zones": (
        "from zoneinfo import ZoneInfo\nfrom datetime import datetime\n"
        "def f(x): return x + datetime(2020, 1, 1, tzinfo=ZoneInfo('Europe/Paris')).utcoffset().seconds - 3600"
    ),
    "recursion": (
        "import functools, sys\nsys.setrecursionlimit(5000)\n@functools.cache\ndef g(n): return n and 1 + g(n - 1)\n"
        "def f(x): return g(2000) - 2000 + x"
    ),
    "sleep": "import time\ndef f(x):\n    time.sleep(0.001)\n    return x",
    "pickle": (
        "import pickle, copy\nclass A:\n    def __init__(s, x): s.x = x\n"
        "def f(x): return pickle.loads(pickle.dumps(copy.deepcopy(A(x)))).x"
    ),
    "logging": "import logging, warnings\nwarnings.warn('w')\nlogging.warning('l')\ndef f(x): return x",
    "memory files": "import tempfile, io, os\ndef f(x):\n    return int(io.StringIO(str(x)).read())",
}


def test_ordinary_programs_run(sandbox: Sandbox) -> None:
    for name, code in PROGRAMS.items():
        report = sandbox.call(code, "f", [(7,)], limits=Limits(cpu_s=5, wall_s=60))
        assert report.values == (7,), (name, report)


def test_threads_and_numpy_run_only_where_they_are_allowed(sandbox: Sandbox) -> None:
    code = """
from concurrent.futures import ThreadPoolExecutor
def f(n):
    with ThreadPoolExecutor(4) as pool: return sum(pool.map(abs, range(n)))"""
    assert sandbox.call(code, "f", [(10,)]).outcomes[0].failure.kind == "RuntimeError"
    with Sandbox(1, allow_threads=True) as threaded:
        assert threaded.call(code, "f", [(10,)]).values == (45,)
        bomb = "import threading\nwhile True: threading.Thread(target=lambda: [0 for _ in iter(int, 1)]).start()"
        bombed = threaded.call(bomb, "f", [(1,)], limits=Limits(cpu_s=0.3, wall_s=30))
        assert bombed.status in ("cpu_limit", "load_error")
        fork = "import os\ndef f(n): return os.fork()"
        assert threaded.call(fork, "f", [(1,)]).outcomes[0].failure.kind == "PermissionError"
        assert threaded.call(code, "f", [(10,)]).values == (45,)
    code = """
import numpy as np
def f(n):
    a = np.arange(n).reshape(2, -1)
    return [a @ a.T, a.mean(), np.linalg.norm(a.astype(float)), np.random.rand(1), a[0, 0] == 0]"""
    assert sandbox.call(code, "f", [(6,)]).failure.kind == "ModuleNotFoundError"
    with Sandbox(1, packages=("numpy",)) as numeric:
        first, second = (numeric.call(code, "f", [(6,)]).values[0] for _ in range(2))
        assert first == second
        assert first[:2] == [[[5, 14], [14, 50]], 2.5]
        escape = "import numpy\ndef f(p): return numpy.fromfile(p, dtype='u1').tolist()"
        assert numeric.call(escape, "f", [("/etc/passwd",)]).outcomes[0].failure is not None
    with pytest.raises(SandboxUnavailable, match="packages='no_such_package_here'"):
        Sandbox(1, packages=("no_such_package_here",)).start()


@pytest.mark.parametrize(
    "options, rule",
    [
        ({"isolation": "D"}, "isolation='D'"),
        *(({name: 0}, "at least 1") for name in ("num_workers", "runs_per_worker")),
        *((each, "above 0") for each in ({"cpu_limit_s": 0}, {"memory_limit_mb": -1})),
    ],
)
def test_a_setting_out_of_range_is_refused(options: dict, rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        Sandbox(**options)
    with pytest.raises(ValueError, match="wall_s=2"):
        Limits(cpu_s=3, wall_s=2)


def test_an_unisolated_run_is_marked_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    with Sandbox(1, isolation="none") as sandbox:
        verdict = sandbox.check(SQUARE, "f", [Case((3,), 9)])
        tested = sandbox.run_tests(SQUARE, "assert f(3) == 9", "f")
    assert verdict.all_passed and not verdict.is_isolated
    assert tested.all_passed and not tested.is_isolated
    assert "isolation='none'" in caplog.text


def test_a_tier_that_does_not_hold_is_never_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolation, "holes", lambda _: ["could fork"])
    with pytest.raises(SandboxUnavailable, match=r"A: .*could fork; B: .*could fork.*isolation='none'"):
        Sandbox(1).start()
    tried = []

    def holes(worker) -> list[str]:
        tried.append(worker.plan.isolation)
        return ["could fork"] if worker.plan.isolation == "A" else []

    monkeypatch.setattr(isolation, "holes", holes)
    with Sandbox(1) as sandbox:
        assert sandbox.isolation == "B"
    assert tried == ["A", "B"]


def test_a_copy_is_the_same_sandbox_and_a_pickle_the_shared_one() -> None:
    own = Sandbox(1, cpu_limit_s=1.5, isolation="none")
    assert copy.copy(own) is own
    assert copy.deepcopy({"held": own})["held"] is own
    thawed = pickle.loads(pickle.dumps(own))
    assert thawed is shared_sandbox(1, cpu_limit_s=1.5, isolation="none")
    assert thawed is pickle.loads(pickle.dumps(thawed))
    assert thawed is not shared_sandbox(1, cpu_limit_s=1.6, isolation="none")
    assert thawed.settings == own.settings


def test_a_closed_sandbox_starts_again_when_it_is_used_and_worn_workers_are_replaced() -> None:
    sandbox = Sandbox(1)
    assert sandbox.process_ids == ()
    assert sandbox.check(SQUARE, "f", [Case((3,), 9)]).all_passed
    (before,) = sandbox.process_ids
    sandbox.close()
    sandbox.close()
    assert not Path(f"/proc/{before}").exists()
    assert sandbox.check(SQUARE, "f", [Case((3,), 9)]).all_passed
    assert sandbox.process_ids != (before,)
    sandbox.close()
    with Sandbox(1, runs_per_worker=10) as sandbox:
        seen = set()
        for number in range(25):
            assert sandbox.check(SQUARE, "f", [Case((number,), number**2)]).all_passed
            seen.update(sandbox.process_ids)
        assert len(seen) >= 3


def test_a_dead_worker_is_replaced_and_one_that_fails_twice_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with Sandbox(1) as sandbox:
        (before,) = sandbox.process_ids
        zygote = youngest_descendant(before)
        os.kill(zygote, signal.SIGKILL)
        while Path(f"/proc/{zygote}/cmdline").exists() and Path(f"/proc/{zygote}/cmdline").read_bytes():
            time.sleep(0.01)
        assert sandbox.check(SQUARE, "f", [Case((3,), 9)]).all_passed
        assert before not in sandbox.process_ids

    def die(self, max_messages) -> None:
        raise run_module.Broken("the zygote died")

    with Sandbox(1) as sandbox:
        sandbox.start()
        monkeypatch.setattr(run_module.ChildRun, "collect", die)
        monkeypatch.setattr(isolation, "holes", lambda _: [])
        with pytest.raises(SandboxError, match="failed twice: the zygote died"):
            sandbox.check(SQUARE, "f", [Case((3,), 9)])
        monkeypatch.undo()
        assert sandbox.check(SQUARE, "f", [Case((3,), 9)]).all_passed


@pytest.mark.slow
def test_a_run_killed_from_outside_is_an_executor_failure() -> None:
    with Sandbox(1) as sandbox:
        (worker,) = sandbox.process_ids
        running = threading.Timer(0.3, lambda: os.kill(youngest_descendant(worker), signal.SIGKILL))
        running.start()
        spin_once = "import time\ndef f():\n    while time.process_time() < 1: pass"
        report = sandbox.call(spin_once, "f", [()], limits=Limits(cpu_s=5, wall_s=60))
        running.join()
        assert report.status == "ok", "it is made again, on a new worker"
        assert worker not in sandbox.process_ids


def youngest_descendant(pid: int) -> int:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return youngest_descendant(int(children[-1])) if children else pid


def test_many_threads_share_few_workers() -> None:
    with Sandbox(2) as sandbox, ThreadPoolExecutor(8) as pool:
        codes = [f"def f(x):\n    return x + {number}" for number in range(40)]
        reports = pool.map(lambda code: sandbox.call(code, "f", [(1,)]).values, codes)
        assert list(reports) == [(1 + number,) for number in range(40)]
        tested = pool.map(lambda code: sandbox.run_tests(code, "assert f(1) == 3", "f").all_passed, codes)
        assert list(tested) == [number == 2 for number in range(40)]
        assert len(sandbox.process_ids) <= 4


def test_a_forked_process_starts_workers_of_its_own() -> None:
    sandbox = Sandbox(1)
    sandbox.start()
    before = sandbox.process_ids
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            passed = sandbox.check(SQUARE, "f", [Case((3,), 9)]).all_passed
            os.write(write, json.dumps([passed, sandbox.process_ids]).encode())
            sandbox.close()
        finally:
            os._exit(0)
    os.close(write)
    os.waitpid(pid, 0)
    passed, theirs = json.loads(os.read(read, 1000))
    os.close(read)
    assert passed and not set(theirs) & set(before)
    assert sandbox.check(SQUARE, "f", [Case((3,), 9)]).all_passed
    assert sandbox.process_ids == before
    sandbox.close()


def test_an_event_loop_goes_on_while_runs_wait() -> None:
    async def race() -> int:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0.005)
                ticks += 1

        clock = asyncio.create_task(tick())
        with Sandbox(2) as sandbox:
            view = AsyncSandbox(sandbox)
            verdicts = await asyncio.gather(*[view.check(SQUARE, "f", [Case((n,), n * n)]) for n in range(6)])
            report = await view.call(SQUARE, "f", [(3,)])
            program = await view.run_program("print(1)")
            tested = await view.run_tests(SQUARE, "assert f(2) == 4", "f")
        clock.cancel()
        assert report.values == (9,) and program.stdout == "1\n" and tested.all_passed
        assert all(verdict.all_passed for verdict in verdicts)
        return ticks

    assert asyncio.run(race()) > 3


def test_it_imports_alone_and_quickly(root: Path) -> None:
    script = "import sys; sys.path.insert(0, sys.argv[1]); import sandbox; print([m for m in sys.modules if m in BAD])"
    bad = "BAD = ('numpy', 'torch', 'gymnasium', 'pettingzoo', 'collm', 'multiprocessing')\n"
    command = [sys.executable, "-I", "-S", "-c", bad + script, str(root / "envs")]
    ran = subprocess.run(command, capture_output=True, text=True)
    assert ran.stdout == "[]\n", ran.stderr
