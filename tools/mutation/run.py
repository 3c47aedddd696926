"""Mutation testing: the fraction of small faults in numerical code that the module's tests find.

    python tools/mutation/run.py                               # all mutants of all areas: hours
    python tools/mutation/run.py --sample 40                   # 40 mutants per module, the same in every call
    python tools/mutation/run.py algorithms/functions --sample 40
    python tools/mutation/run.py --table                       # print the known results

cosmic-ray's operators make the mutants. `areas.toml` lists the mutated modules and their tests. Each mutant runs in a
fork of a process that has imported the large libraries. Only that fork gets the mutated source, so the files never
change. A process that a test starts imports the original module, and a mutant can survive that way. A mutant is killed
if a test fails, or if the tests take far more time or memory than for the original module.

Results are stored in `.mutants/`. A killed mutant is tried again only if its module changes, a survivor also if its
tests change. Mutants that behave like the original module cannot be killed, and count as survivors.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import gc
import hashlib
import importlib
import json
import os
import random
import re
import resource
import signal
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from cosmic_ray.ast import Visitor, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names

if sys.version_info < (3, 11):
    import tomli as tomllib
else:
    import tomllib

ROOT = Path(__file__).resolve().parents[2]
AREAS = Path(__file__).with_name("areas.toml")
RESULTS = ROOT / ".mutants" / "results.jsonl"
ORIGINAL_LOG = ROOT / ".mutants" / "original.log"
PRELOADED = (
    *("hypothesis", "numpy", "scipy.special", "torch", "torch._dynamo", "transformers", "peft", "gymnasium"),
    "pettingzoo.test",
)
OPTIONS = (
    *("-q", "-x", "-m", "not slow and not gpu", "-p", "no:cacheprovider"),
    *("-p", "_hypothesis_pytestplugin", "--hypothesis-seed=0"),
    *("-W", "ignore::pytest.PytestAssertRewriteWarning"),  # of the preloaded modules
)
MEMORY = 8 << 30  # bytes of address space
KILLED, SURVIVED = "killed", "survived"
GOAL = 0.9  # fraction of an area's mutants that must be killed
HEAD = "| module | places | tried | killed | survived | share killed |\n|---|" + "---:|" * 5


@dataclass(frozen=True)
class Mutant:
    """A module with one fault."""

    module: str  # path from the repository's root
    operator: str
    line: int  # from 1
    before: str  # the line, without indentation
    after: str
    source: str  # of the whole module

    @property
    def key(self) -> str:
        return hashlib.sha256(self.source.encode()).hexdigest()[:16]

    def __str__(self) -> str:
        return f"\n{self.module}:{self.line} ({self.operator})\n    - {self.before}\n    + {self.after}"


class _Counter(Visitor):
    """Counts the places where each operator applies."""

    def __init__(self, operators: dict[str, Any]):
        self.operators = operators
        self.found: Counter[str] = Counter()

    def visit(self, node: Any) -> Any:
        for name, operator in self.operators.items():
            self.found[name] += len(list(operator.mutation_positions(node)))
        return node


def sampled(module: str, excluded: str, size: int | None, seed: int) -> tuple[int, list[Mutant]]:
    """Return the number of possible mutations of a module, and a sample of mutants. Larger samples extend smaller."""
    source = (ROOT / module).read_text()
    counter = _Counter(
        {name: get_operator(name)() for name in sorted(operator_names()) if not re.search(excluded, name)}
    )
    counter.walk(get_ast(source))
    places = [(name, occurrence) for name, count in counter.found.items() for occurrence in range(count)]
    random.Random(f"{seed} {module}").shuffle(places)
    return len(places), list(islice(_mutants(module, source, places), size))


def _mutants(module: str, source: str, places: Iterable[tuple[str, int]]) -> Iterator[Mutant]:
    """Yield mutants that compile and whose code differs from the original and from earlier mutants."""
    seen = {None, _executed(source)}
    for operator, occurrence in places:
        mutated = mutate_code(source, get_operator(operator)(), occurrence)
        executed = _executed(mutated)
        if executed not in seen:
            seen.add(executed)
            before, after = source.splitlines(), mutated.splitlines()
            line = next(i for i, (old, new) in enumerate(zip(before, after, strict=False)) if old != new)
            new = after[line].strip() if len(before) == len(after) else ""  # a decorator is removed with its line
            yield Mutant(module, operator, line + 1, before[line].strip(), new, mutated)


def _executed(source: str) -> str | None:
    """Return the syntax tree without annotations, and without `*` and `/` in signatures. None: it does not compile."""
    try:
        tree = ast.parse(source)
        compile(tree, "mutant", "exec")
    except (SyntaxError, ValueError):
        return None
    for node in ast.walk(tree):
        if isinstance(node, ast.AnnAssign):
            node.annotation = ast.Constant(None)
        elif isinstance(node, ast.arg):
            node.annotation = None
        elif isinstance(node, ast.FunctionDef):
            node.returns = None
        elif isinstance(node, ast.arguments):
            node.args = [*node.posonlyargs, *node.args, *node.kwonlyargs]
            node.defaults += [default for default in node.kw_defaults if default is not None]
            node.posonlyargs, node.kwonlyargs, node.kw_defaults = [], [], []
    return ast.dump(tree)


class Ledger:
    """Results of the mutants, stored in `.mutants/results.jsonl` for later calls."""

    def __init__(self) -> None:
        lines = RESULTS.read_text().splitlines() if RESULTS.exists() else []
        self.records = {record["key"]: record for record in map(json.loads, lines)}

    def outcome(self, mutant: Mutant, version: str | None = None) -> str | None:
        """Return the result of a mutant. None: it was not tried, or it survived another version of its tests."""
        record = self.records.get(mutant.key)
        if record is None or (record["outcome"] == SURVIVED and version and record["tests"] != version):
            return None
        return str(record["outcome"])

    def add(self, mutant: Mutant, outcome: str, version: str) -> None:
        record = {"key": mutant.key, "outcome": outcome, "tests": version}
        self.records[mutant.key] = record
        with RESULTS.open("a") as file:
            file.write(json.dumps(record) + "\n")

    def row(self, name: str, num_places: int, mutants: Sequence[Mutant]) -> tuple[str, float]:
        """Return a row of the table, and the fraction of the tried mutants that tests killed."""
        found = [self.outcome(mutant) for mutant in mutants]
        killed, survived = found.count(KILLED), found.count(SURVIVED)
        tried = killed + survived
        share = killed / tried if tried else 1.0
        cells = (name, num_places, tried, killed, survived, f"{share:.0%}" if tried else "-")
        return f"| {' | '.join(map(str, cells))} |", share


def _child(path: Path, source: str | None, tests: Sequence[str], cpu_s: float) -> None:
    """Run the tests in this process with `source` as the content of `path`, and exit with pytest's status."""
    os.setsid()
    # The output of mutants is not stored: it would be long.
    output = os.open(os.devnull if source else ORIGINAL_LOG, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    resource.setrlimit(resource.RLIMIT_CPU, (int(cpu_s) + 1, int(cpu_s) + 5))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    original = SourceFileLoader.get_code

    def get_code(loader: SourceFileLoader, fullname: str) -> Any:
        if source is not None and Path(loader.path).resolve() == path:
            return compile(source, str(path), "exec", dont_inherit=True)
        return original(loader, fullname)

    SourceFileLoader.get_code = get_code  # type: ignore[method-assign]
    import hypothesis

    hypothesis.settings.register_profile("mutants", database=None, deadline=None, derandomize=True)
    hypothesis.settings.load_profile("mutants")
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    os._exit(int(pytest.main([*OPTIONS, *tests])))


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


def _killed(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def outcomes(
    chosen: Sequence[Mutant], tests: Sequence[str], seconds: float, num_workers: int
) -> Iterator[tuple[Mutant, str]]:
    """Run the tests of each mutant in a fork. Yields each mutant with its result, in the order of completion."""
    waiting = list(reversed(chosen))
    running: dict[int, tuple[Mutant, float]] = {}  # mutants and their deadlines
    cpu_s = 10 + 4 * seconds
    while waiting or running:
        while waiting and len(running) < num_workers:
            mutant = waiting.pop()
            pid = _forked(ROOT / mutant.module, mutant.source, tests, cpu_s)
            running[pid] = mutant, time.monotonic() + 60 + 10 * cpu_s
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid in running:
            _killed(pid)
            code = os.waitstatus_to_exitcode(status)
            if code in (5, 70):
                raise SystemExit(f"pytest {' '.join(tests)} exits with {code}: the tests did not run")
            yield running.pop(pid)[0], KILLED if code else SURVIVED
            continue
        for late in [pid for pid, (_, deadline) in running.items() if time.monotonic() > deadline]:
            _killed(late)
        time.sleep(0.02)


def _try(module: str, chosen: Sequence[Mutant], tests: Sequence[str], ledger: Ledger, num_workers: int) -> None:
    text = b"".join((ROOT / test).read_bytes() for test in tests if (ROOT / test).is_file())
    version = hashlib.sha256(text).hexdigest()[:16]
    unknown = [mutant for mutant in chosen if ledger.outcome(mutant, version) is None]
    if not unknown:
        return
    _, status, usage = os.wait4(_forked(ROOT / module, None, tests, 3600), 0)
    if status:
        raise SystemExit(f"pytest {' '.join(tests)} fails without a mutant; see {ORIGINAL_LOG}")
    seconds = usage.ru_utime + usage.ru_stime
    print(f"{module}: trying {len(unknown)} of {len(chosen)} mutants, about {seconds:.1f} CPU s each", flush=True)
    for mutant, outcome in outcomes(unknown, tests, seconds, num_workers):
        ledger.add(mutant, outcome, version)
        if outcome == SURVIVED:
            print(mutant, flush=True)


def _preload() -> None:
    # Before torch is imported: threads that wait for each other would take most of the time.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in PRELOADED:
            importlib.import_module(name)
    sys.dont_write_bytecode = False  # pytest stores rewritten assertions in __pycache__
    gc.freeze()  # otherwise each fork would copy these objects in its first collection


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", help="first parts of the modules' paths; none: all modules")
    parser.add_argument("--sample", type=int, help="mutants per module; default: all")
    parser.add_argument("--seed", type=int, default=0, help="seed of the sample")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes; default: one per core")
    parser.add_argument("--table", action="store_true", help="print the known results without trying mutants")
    arguments = parser.parse_args()
    os.chdir(ROOT)
    RESULTS.parent.mkdir(exist_ok=True)
    plan, ledger = tomllib.loads(AREAS.read_text()), Ledger()
    if not arguments.table:
        _preload()
    rows: list[str] = []
    failed: list[str] = []
    for area, patterns in plan["areas"].items():
        total, of_area = 0, []
        for module in (str(path.relative_to(ROOT)) for each in patterns for path in sorted(ROOT.glob(each))):
            if arguments.paths and not any(module.startswith(path) for path in arguments.paths):
                continue
            num_places, chosen = sampled(module, "|".join(plan["excluded"]), arguments.sample, arguments.seed)
            if not chosen:
                continue
            path = Path("tests", module)
            tests = plan["tests"].get(module) or [str(path.with_name(f"test_{path.name}"))]
            if not arguments.table:
                _try(module, chosen, tests, ledger, arguments.workers)
            rows.append(ledger.row(module, num_places, chosen)[0])
            total, of_area = total + num_places, [*of_area, *chosen]
        if of_area:
            row, share = ledger.row(f"**{area}**", total, of_area)
            rows.append(row)
            failed += [area] if share < GOAL else []
            survivors = [each for each in of_area if ledger.outcome(each) == SURVIVED]
            print("\n".join(map(str, sorted(survivors, key=lambda each: (each.module, each.line)))))
    print("\n".join(["", HEAD, *rows]))
    if failed:
        sys.exit(f"tests killed fewer than {GOAL:.0%} of the mutants in {', '.join(failed)}; survivors: see above")


if __name__ == "__main__":
    main()
