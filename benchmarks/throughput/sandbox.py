"""CPU time of one checked run of untrusted code in the sandbox, beside the usual ways of doing it.

All contenders check the same solution against the same five cases, except for the bare forks, which run nothing. The
time of a contender is the difference between many runs and few, so that starting up does not count, over its whole
process tree. Contenders take turns, so that a change of load meets all of them.
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass

from ...envs.sandbox import Case, Sandbox
from ...envs.sandbox.settings import PRELOAD
from .timing import look

_SOLUTION = """
def longest_run(numbers):
    best = length = 0
    for i, number in enumerate(numbers):
        length = length + 1 if i and numbers[i - 1] == number else 1
        best = max(best, length)
    return best
"""
_CASES: tuple[tuple[tuple[list[int]], int], ...] = (
    (([1, 1, 2],), 2),
    (([],), 0),
    (([5] * 9,), 9),
    (([1, 2, 1, 2],), 1),
    (([3, 3, 0, 0, 0],), 3),
)
_ASSERTIONS = "".join(f"assert longest_run(*{arguments!r}) == {expected}\n" for arguments, expected in _CASES)
_USUAL = (
    "array bisect cmath collections contextlib copy dataclasses datetime decimal enum fractions functools hashlib "
    "heapq itertools json math operator queue random re statistics string struct textwrap time types typing unicodedata"
)
"""Modules that make an interpreter of 16 MB, as a plain fork server would hold them."""
_FORK = f"""
import os
import {", ".join(_USUAL.split())}
for _ in range(NUM_RUNS):
    pid = os.fork()
    if not pid:
        os._exit(0)
    os.waitpid(pid, 0)
"""
_LEAN_FORK = _FORK.replace(", ".join(_USUAL.split()), ", ".join(("ctypes", "select", "socket", *PRELOAD)))
"""The same with the modules of the sandbox's zygote."""
_MANAGER = f"""
import contextlib, io, multiprocessing, signal

def expire(number, frame):
    raise TimeoutError

def attempt(program, results):
    signal.signal(signal.SIGALRM, expire)
    signal.setitimer(signal.ITIMER_REAL, 3.0)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            exec(program, {{}})
        results.append("passed")
    except BaseException as error:
        results.append("failed: %s" % error)
    signal.setitimer(signal.ITIMER_REAL, 0)

def is_correct(program):
    with multiprocessing.Manager() as manager:
        results = manager.list()
        process = multiprocessing.Process(target=attempt, args=(program, results))
        process.start()
        process.join(timeout=4.0)
        if process.is_alive():
            process.kill()
        return list(results) == ["passed"]

multiprocessing.set_start_method("fork")
for _ in range(NUM_RUNS):
    assert is_correct({_SOLUTION + _ASSERTIONS!r})
"""


@dataclass(frozen=True)
class Row:
    """One way to run the solution."""

    name: str
    cpu_ms: float
    """CPU milliseconds per run, of every process involved."""
    runs_per_cpu_s: float
    times_the_sandbox: float
    """`cpu_ms` over the sandbox's."""


def _cpu_s() -> float:
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def _run_script(source: str, num_runs: int) -> None:
    script = f"NUM_RUNS = {num_runs}\n{source}"
    subprocess.run([sys.executable, "-I", "-S", "-c", script], check=True, stdout=subprocess.DEVNULL)


def _fork_and_wait(num_runs: int) -> None:
    _run_script(_FORK, num_runs)


def _lean_fork_and_wait(num_runs: int) -> None:
    _run_script(_LEAN_FORK, num_runs)


def _manager_checker(num_runs: int) -> None:
    _run_script(_MANAGER, num_runs)


def _fresh_interpreter(num_runs: int) -> None:
    for _ in range(num_runs):
        subprocess.run([sys.executable, "-I", "-S", "-c", _SOLUTION + _ASSERTIONS], check=True)


def _sandbox(num_runs: int) -> None:
    cases = [Case(arguments, expected) for arguments, expected in _CASES]
    with Sandbox(num_workers=1) as sandbox:
        for _ in range(num_runs):
            assert sandbox.check(_SOLUTION, "longest_run", cases).all_passed


_SANDBOX = "sandbox"
_CONTENDERS: dict[str, tuple[Callable[[int], None], int]] = {
    _SANDBOX: (_sandbox, 8),
    "bare fork and wait, 16 MB": (_fork_and_wait, 16),
    "bare fork and wait, lean": (_lean_fork_and_wait, 16),
    "fresh python -I -S": (_fresh_interpreter, 2),
    "manager and process": (_manager_checker, 1),
}
"""Contenders by name, each with the factor for its number of runs that lets all take about equally long."""


def _cost_s(contender: Callable[[int], None], num_runs: int) -> float:
    costs = []
    for count in (1, 1 + num_runs):
        before = _cpu_s()
        contender(count)
        costs.append(_cpu_s() - before)
    return (costs[1] - costs[0]) / num_runs


def measure(num_runs: int = 40, num_rounds: int = 5) -> list[Row]:
    """CPU cost of one run with each contender, the median over rounds.

    Args:
        num_runs: runs of the slowest contender in one round; the quick ones make up to 16 times as many.
        num_rounds: rounds in which all contenders take their turn.
    """
    costs: dict[str, list[float]] = {name: [] for name in _CONTENDERS}
    for _ in range(num_rounds):
        look()
        for name, (contender, factor) in _CONTENDERS.items():
            costs[name].append(_cost_s(contender, num_runs * factor))
    look()
    medians = {name: statistics.median(found) for name, found in costs.items()}
    return [Row(name, 1000 * cost, 1 / cost, cost / medians[_SANDBOX]) for name, cost in medians.items()]


def table(rows: list[Row]) -> str:
    """The rows as text, in columns."""
    lines = [f"{'run by':<28}{'CPU ms':>8}{'runs per CPU s':>16}{'x sandbox':>11}"]
    lines += [
        f"{row.name:<28}{row.cpu_ms:>8.2f}{row.runs_per_cpu_s:>16.0f}{row.times_the_sandbox:>11.2f}" for row in rows
    ]
    return "\n".join(lines)
