"""Mutation testing: how many small faults in the code that results rest on are found by the tests beside it.

    python tests/mutation/run.py                               # every mutant of every area: hours
    python tests/mutation/run.py --sample 40                   # the same 40 of each module at every call
    python tests/mutation/run.py algorithms/functions --sample 40
    python tests/mutation/run.py --table                       # what is known so far, without running anything

Faults are made by cosmic-ray's operators (`mutants.py`). `areas.toml` says what is mutated and which tests stand beside
a module. Each mutant runs in a fork of a process that has imported the large libraries; the fork alone gets the mutated
source, so the tree is never changed. Processes that a test starts see the sound module: a mutant can survive by that,
never die of it. A mutant is killed if a test fails, or if the tests take far more time or memory than without it.

What came of each mutant is kept under `.mutants/`: one that was killed is not tried again until its module changes, one
that survived is tried again when its tests change. Some survivors behave like the sound module. No test can find them,
but they count as survivors.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import hashlib
import importlib
import json
import os
import random
import resource
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from itertools import islice
from pathlib import Path
from types import CodeType

import pytest
from mutants import Mutant, mutants, places

if sys.version_info < (3, 11):
    import tomli as tomllib
else:
    import tomllib

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
RESULTS = ROOT / ".mutants" / "results.jsonl"
SOUND_LOG = ROOT / ".mutants" / "sound.log"
PRELOADED = (
    *("hypothesis", "numpy", "scipy.special", "torch", "torch._dynamo", "transformers", "peft", "gymnasium"),
    "pettingzoo.test",
)
OPTIONS = (
    *("-q", "-x", "-m", "not slow and not gpu", "-p", "no:cacheprovider"),
    *("-p", "_hypothesis_pytestplugin", "--hypothesis-seed=0"),
    *("-W", "ignore::pytest.PytestAssertRewriteWarning"),  # of what is preloaded
)
MEMORY = 8 << 30  # bytes of address space
KILLED, SURVIVED = "killed", "survived"
GOAL = 0.9  # share of an area's mutants that must be killed


@dataclass(frozen=True)
class Area:
    """A part of the code whose tests are held to account together."""

    name: str
    modules: tuple[str, ...]  # paths from the root


@dataclass(frozen=True)
class Plan:
    """What is mutated, with which tests."""

    areas: tuple[Area, ...]
    tests: dict[str, list[str]]  # by module, the most telling first
    excluded: str  # regular expression of operators

    @classmethod
    def read(cls) -> Plan:
        told = tomllib.loads((HERE / "areas.toml").read_text())
        areas = tuple(
            Area(name, tuple(str(path.relative_to(ROOT)) for each in patterns for path in sorted(ROOT.glob(each))))
            for name, patterns in told["areas"].items()
        )
        every = [module for area in areas for module in area.modules]
        tests = {module: told["tests"].get(module) or _mirrored(module) for module in every}
        lacking = [
            f"{test} beside {module}"
            for module, beside in tests.items()
            for test in beside
            if Path(module).name != "__init__.py" and not (ROOT / test).is_file()
        ]
        if lacking:
            raise SystemExit(f"areas.toml must name tests that exist: there is no {', no '.join(lacking)}")
        return cls(areas, tests, "|".join(told["excluded"]))


def _mirrored(module: str) -> list[str]:
    path = Path("tests", module)
    return [str(path.with_name(f"test_{path.name}"))]


@dataclass
class Trial:
    """The tests of a module under way in a fork."""

    mutant: Mutant
    deadline: float  # by time.monotonic()


class Ledger:
    """What came of each mutant, kept from call to call."""

    def __init__(self) -> None:
        lines = RESULTS.read_text().splitlines() if RESULTS.exists() else []
        self.records = {record["key"]: record for record in map(json.loads, lines)}

    def outcome(self, mutant: Mutant, version: str | None = None) -> str | None:
        """What came of it; None if it was not tried, or survived other tests than those of this version."""
        record = self.records.get(mutant.key)
        if record is None or (record["outcome"] == SURVIVED and version and record["tests"] != version):
            return None
        return str(record["outcome"])

    def add(self, mutant: Mutant, outcome: str, version: str) -> None:
        record = {"key": mutant.key, "outcome": outcome, "tests": version}
        self.records[mutant.key] = record
        with RESULTS.open("a") as file:
            file.write(json.dumps(record) + "\n")


def version_of(tests: Iterable[str]) -> str:
    """A number of the tests' text."""
    text = b"".join(path.read_bytes() for test in tests for path in [ROOT / test] if path.is_file())
    return hashlib.sha256(text).hexdigest()[:16]


def sampled(module: str, plan: Plan, size: int | None, seed: int) -> tuple[int, list[Mutant]]:
    """The number of a module's mutants, and some of them: the same at every call, the first of a larger sample."""
    source = (ROOT / module).read_text()
    found = places(source, plan.excluded)
    random.Random(f"{seed} {module}").shuffle(found)
    return len(found), list(islice(mutants(module, source, found), size))


def _child(path: Path, source: str | None, tests: Sequence[str], cpu_s: float) -> None:
    """Run the tests with this source in place of the file's; never returns."""
    os.setsid()
    # Only of the sound module is the output of use; that of mutants would be long.
    output = os.open(os.devnull if source else SOUND_LOG, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    resource.setrlimit(resource.RLIMIT_CPU, (int(cpu_s) + 1, int(cpu_s) + 5))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    sound = SourceFileLoader.get_code

    def get_code(loader: SourceFileLoader, fullname: str) -> CodeType | None:
        if source is not None and Path(loader.path).resolve() == path:
            return compile(source, str(path), "exec", dont_inherit=True)
        return sound(loader, fullname)

    SourceFileLoader.get_code = get_code  # type: ignore[method-assign]
    import hypothesis

    hypothesis.settings.register_profile("mutants", database=None, deadline=None, derandomize=True)
    hypothesis.settings.load_profile("mutants")
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    status = pytest.main([*OPTIONS, *tests])
    os._exit(int(status))


def _forked(path: Path, source: str | None, tests: Sequence[str], cpu_s: float) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        _child(path, source, tests, cpu_s)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(70)


def _ended(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def sound_seconds(module: str, tests: Sequence[str]) -> float:
    """CPU seconds of a module's tests as it is.

    Raises:
        SystemExit: if they fail.
    """
    pid = _forked(ROOT / module, None, tests, 3600)
    _, status, usage = os.wait4(pid, 0)
    if status:
        raise SystemExit(f"without any fault, pytest {' '.join(tests)} fails; see {SOUND_LOG}")
    return usage.ru_utime + usage.ru_stime


def outcomes(
    chosen: Sequence[Mutant], tests: Sequence[str], seconds: float, num_workers: int
) -> Iterator[tuple[Mutant, str]]:
    """What comes of each mutant, as it is known."""
    waiting = list(reversed(chosen))
    running: dict[int, Trial] = {}
    cpu_s = 10 + 4 * seconds
    while waiting or running:
        while waiting and len(running) < num_workers:
            mutant = waiting.pop()
            pid = _forked(ROOT / mutant.module, mutant.source, tests, cpu_s)
            running[pid] = Trial(mutant, time.monotonic() + 60 + 10 * cpu_s)
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid in running:
            _ended(pid)
            code = os.waitstatus_to_exitcode(status)
            if code in (5, 70):
                raise SystemExit(f"pytest {' '.join(tests)} ends with {code}: the tests did not run")
            yield running.pop(pid).mutant, KILLED if code else SURVIVED
            continue
        for late in [pid for pid, trial in running.items() if time.monotonic() > trial.deadline]:
            _ended(late)
        time.sleep(0.02)


@dataclass(frozen=True)
class Tally:
    """What came of some mutants."""

    name: str
    num_places: int  # how many faults could be made
    killed: int
    survived: int

    @classmethod
    def of(cls, name: str, num_places: int, chosen: Iterable[Mutant], ledger: Ledger) -> Tally:
        found = [ledger.outcome(mutant) for mutant in chosen]
        return cls(name, num_places, found.count(KILLED), found.count(SURVIVED))

    @property
    def share(self) -> float | None:
        """Share of the tried mutants that was killed; None if none was tried."""
        tried = self.killed + self.survived
        return self.killed / tried if tried else None

    def row(self) -> str:
        share = "-" if self.share is None else f"{self.share:.0%}"
        cells = (self.name, self.num_places, self.killed + self.survived, self.killed, self.survived, share)
        return f"| {' | '.join(map(str, cells))} |"


HEAD = "| module | places | tried | killed | survived | share killed |\n|---|" + "---:|" * 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", help="beginnings of modules' paths; none: all")
    parser.add_argument("--sample", type=int, help="mutants per module; default: all")
    parser.add_argument("--seed", type=int, default=0, help="seed of the sample")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes; default: one per core")
    parser.add_argument("--table", action="store_true", help="show what is known, and try nothing")
    arguments = parser.parse_args()
    os.chdir(ROOT)
    RESULTS.parent.mkdir(exist_ok=True)
    plan, ledger = Plan.read(), Ledger()
    if not arguments.table:
        # Before torch is imported: threads that wait for each other would take most of the time.
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for name in PRELOADED:
                importlib.import_module(name)
        sys.dont_write_bytecode = False  # rewritten assertions of the tests are kept, as ever, in __pycache__
        gc.freeze()  # else every fork would walk through all of that in each collection
    tallies: list[Tally] = []
    of_areas: list[Tally] = []
    left: list[Mutant] = []
    for area in plan.areas:
        num_places = 0
        of_area: list[Mutant] = []
        for module in area.modules:
            if arguments.paths and not any(module.startswith(path) for path in arguments.paths):
                continue
            count, chosen = sampled(module, plan, arguments.sample, arguments.seed)
            if not chosen:
                continue
            if not arguments.table:
                _try(module, chosen, plan.tests[module], ledger, arguments.workers)
            tallies.append(Tally.of(module, count, chosen, ledger))
            num_places += count
            of_area += chosen
        if of_area:
            of_areas.append(Tally.of(f"**{area.name}**", num_places, of_area, ledger))
            tallies.append(of_areas[-1])
            left += [each for each in of_area if ledger.outcome(each) == SURVIVED]
    for mutant in sorted(left, key=lambda mutant: (mutant.module, mutant.line)):
        print(_text(mutant))
    print("\n".join(["", HEAD, *(tally.row() for tally in tallies)]))
    failed = [tally.name for tally in of_areas if tally.share is not None and tally.share < GOAL]
    if failed:
        sys.exit(f"fewer than {GOAL:.0%} were killed in {', '.join(failed)}; the survivors stand above")


def _text(mutant: Mutant) -> str:
    where = f"{mutant.module}:{mutant.line} {mutant.function}"
    return f"\n{where} ({mutant.operator})\n    - {mutant.before}\n    + {mutant.after}"


def _try(module: str, chosen: Sequence[Mutant], tests: Sequence[str], ledger: Ledger, num_workers: int) -> None:
    version = version_of(tests)
    unknown = [mutant for mutant in chosen if ledger.outcome(mutant, version) is None]
    if not unknown:
        return
    seconds = sound_seconds(module, tests)
    print(f"{module}: {len(unknown)} of {len(chosen)} to try, {seconds:.1f} CPU s each at most", flush=True)
    for mutant, outcome in outcomes(unknown, tests, seconds, num_workers):
        ledger.add(mutant, outcome, version)
        if outcome == SURVIVED:
            print(_text(mutant), flush=True)


if __name__ == "__main__":
    main()
