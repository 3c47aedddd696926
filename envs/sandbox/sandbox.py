"""`Sandbox`, which runs untrusted Python code."""

from __future__ import annotations

import asyncio
import logging
import secrets
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from . import values
from .exchange import calls, relay
from .isolation import Workshop
from .results import Case, Failure, Report, TestReport, Verdict
from .settings import PRELOAD, AskedIsolation, Limits, SandboxError, Settings
from .values import MalformedValue
from .workers.ceiling import num_processors, shared_ceiling
from .workers.run import Broken
from .workers.worker import Isolation, Pool, Worker

_log = logging.getLogger(__name__)
Result = TypeVar("Result")


def _passes(case: Case, result: Any) -> bool:
    if isinstance(result, Failure):
        return False
    try:
        if case.accepts is None:
            return values.is_equal(result, case.expected, case.tolerance)
        value = values.read(result)
    except MalformedValue:
        return False
    try:
        return bool(case.accepts(value))
    except Exception:  # the predicate may not expect this type
        return False


class Sandbox:
    """Executor of untrusted Python code. Thread-safe.

    Worker processes start at the first call. `close` ends the worker processes, and a later call starts new processes.
    `copy` and `deepcopy` return the same sandbox. Unpickling returns the `shared_sandbox` with the same settings.

    Args: see the fields of `Settings`.

    Raises:
        ValueError: if a setting is invalid.
    """

    def __init__(
        self,
        num_workers: int | None = None,
        *,
        cpu_limit_s: float = 2.0,
        memory_limit_mb: int = 512,
        isolation: AskedIsolation = "auto",
        packages: Sequence[str] = (),
        allow_threads: bool = False,
        runs_per_worker: int = 10_000,
        preload: Sequence[str] = PRELOAD,
    ) -> None:
        self.settings = Settings(
            num_workers=num_workers,
            cpu_limit_s=cpu_limit_s,
            memory_limit_mb=memory_limit_mb,
            isolation=isolation,
            packages=tuple(packages),
            allow_threads=allow_threads,
            runs_per_worker=runs_per_worker,
            preload=tuple(preload),
        )
        self.num_workers = num_workers or num_processors()
        self._workshop = workshop = Workshop(self.settings)
        self._solvers = Pool(workshop.make, self.num_workers, runs_per_worker)
        self._judges = Pool(lambda: workshop.make(is_judge=True), self.num_workers, runs_per_worker)

    def call(
        self,
        code: str,
        function: str,
        arguments_list: Iterable[Sequence[Any]],
        *,
        keywords: Mapping[str, Any] | None = None,
        limits: Limits | None = None,
        seed: int = 0,
    ) -> Report:
        """Call a function of untrusted code once per set of arguments, in one sandboxed process.

        Args:
            code: untrusted Python source.
            function: name of the function.
            arguments_list: positional arguments of each call; plain data, such as numbers, strings and lists.
            keywords: keyword arguments of every call; plain data.
            limits: limits of this run. None: the sandbox's limits.
            seed: seed of `random`, and of NumPy's global generator if NumPy is among the packages.

        Raises:
            SandboxError: if the sandbox itself failed, so that there is no result.
            TypeError: if an argument is not plain data.
        """
        made = [(tuple(arguments), keywords or {}) for arguments in arguments_list]
        return self._call(code, function, made, limits, seed).report()

    def check(
        self, code: str, entry_point: str, cases: Iterable[Case], *, limits: Limits | None = None, seed: int = 0
    ) -> Verdict:
        """Call a function of untrusted code and compare the results with expected results, which the code cannot read.

        Args and Raises: see `call`.
        """
        cases = list(cases)
        answers = self._call(code, entry_point, [(case.arguments, case.keywords) for case in cases], limits, seed)
        is_credible = answers.status not in ("malformed", "output_limit")
        pairs = zip(cases, answers.results, strict=True)
        return Verdict(answers.report(), tuple(is_credible and _passes(case, result) for case, result in pairs))

    def run_program(self, code: str, stdin: str = "", *, limits: Limits | None = None, seed: int = 0) -> Report:
        """Run untrusted code as a main program. The report has one outcome, which is a failure if the program failed.

        Raises:
            SandboxError: if the sandbox itself failed, so that there is no result.
        """
        chosen = limits or self.settings.limits
        return self._solve(chosen, lambda worker: calls.run_program(worker, chosen, code, stdin, seed)).report()

    def run_tests(
        self,
        code: str,
        test_source: str,
        entry_point: str,
        *,
        functions: Sequence[str] = (),
        classes: Sequence[str] = (),
        support: str = "",
        limits: Limits | None = None,
        seed: int | None = None,
    ) -> TestReport:
        """Run tests of untrusted code. The tests and the code run in two isolated processes (jails).

        Args:
            code: untrusted Python source.
            test_source: assertions at module level, a function `check(candidate)`, or unittest classes.
            entry_point: name of the function under test, or of one of `classes`. This object is passed to `check`.
            functions: names of other functions of the code that the tests call.
            classes: names of classes of the code that the tests instantiate.
            support: trusted source that runs before the tests, such as helper functions. Functions and classes under
                test replace objects with the same name.
            limits: limits of the code. The tests have twice the time. None: the sandbox's limits.
            seed: seed of `random` and of NumPy's global generator. The code and the tests get different random numbers,
                so that the code cannot predict the tests' inputs. None: a random seed.

        Raises:
            SandboxError: if the sandbox itself failed, so that there is no result.
        """
        named = tuple(dict.fromkeys([entry_point, *functions]))
        plain = tuple(name for name in named if name not in classes)
        tests = relay.Tests(test_source, entry_point, plain, tuple(classes), support)
        chosen, chosen_seed = limits or self.settings.limits, secrets.randbits(64) if seed is None else seed

        def job() -> TestReport:
            # Workers first: a waiting thread must not use a part of the limit that all sandboxes share (ceiling).
            memory_mb = 2 * chosen.memory_mb  # for the code and for the tests
            with self._solvers.lease() as solver, self._judges.lease() as judge, shared_ceiling().taken(memory_mb):
                return relay.run_tests(solver, judge, chosen, code, tests, chosen_seed)

        return self._attempt(job)

    @property
    def isolation(self) -> Isolation:
        """Isolation tier: "A", "B", "C" or "none". The first access starts a worker process.

        Raises:
            SandboxUnavailable: if no tier works on this machine.
        """
        if self._workshop.chosen is None:
            self.start()
        assert self._workshop.chosen is not None
        return self._workshop.chosen

    @property
    def process_ids(self) -> tuple[int, ...]:
        """Process ids of the worker processes that are idle."""
        return self._solvers.process_ids + self._judges.process_ids

    def start(self) -> None:
        """Start a worker process before the first call.

        Raises:
            SandboxUnavailable: if no tier works on this machine.
        """
        with self._solvers.lease():
            pass

    def close(self) -> None:
        """End all idle worker processes."""
        self._solvers.close()
        self._judges.close()

    def __enter__(self) -> Sandbox:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __copy__(self) -> Sandbox:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Sandbox:
        return self

    def __reduce__(self) -> tuple[Callable[[Settings], Sandbox], tuple[Settings]]:
        return _shared_of, (self.settings,)

    def _call(
        self, code: str, function: str, made: Sequence[calls.Call], limits: Limits | None, seed: int
    ) -> calls.Answers:
        chosen, plain = limits or self.settings.limits, calls.plain_calls(made)
        return self._solve(chosen, lambda worker: calls.call(worker, chosen, code, function, plain, seed))

    def _solve(self, limits: Limits, job: Callable[[Worker], calls.Answers]) -> calls.Answers:
        def with_worker() -> calls.Answers:
            with self._solvers.lease() as worker, shared_ceiling().taken(limits.memory_mb):
                return job(worker)

        return self._attempt(with_worker)

    def _attempt(self, job: Callable[[], Result]) -> Result:
        """Run a job. If a worker process fails, run the job once more with new worker processes."""
        try:
            return job()
        except Broken as error:
            _log.warning("sandbox: %s; retrying with a new worker", error)
            self.close()
        try:
            return job()
        except Broken as error:
            raise SandboxError(f"the sandbox failed twice: {error}") from error


_shared: dict[Settings, Sandbox] = {}
_sharing = threading.Lock()


def _shared_of(settings: Settings) -> Sandbox:
    with _sharing:
        if settings not in _shared:
            _shared[settings] = Sandbox(**vars(settings))
        return _shared[settings]


def shared_sandbox(
    num_workers: int | None = None,
    *,
    cpu_limit_s: float = 2.0,
    memory_limit_mb: int = 512,
    isolation: AskedIsolation = "auto",
    packages: Sequence[str] = (),
) -> Sandbox:
    """Return the sandbox that all callers in this process with the same settings share, with its worker processes.

    Args and Raises: see `Sandbox`.
    """
    return _shared_of(
        Settings(
            num_workers=num_workers,
            cpu_limit_s=cpu_limit_s,
            memory_limit_mb=memory_limit_mb,
            isolation=isolation,
            packages=tuple(packages),
        )
    )


class AsyncSandbox:
    """Sandbox whose methods are coroutines. They run the methods of `Sandbox` in threads, with the same `options`."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox

    async def call(self, code: str, function: str, arguments_list: Iterable[Sequence[Any]], **options: Any) -> Report:
        return await asyncio.to_thread(self.sandbox.call, code, function, arguments_list, **options)

    async def check(self, code: str, entry_point: str, cases: Iterable[Case], **options: Any) -> Verdict:
        return await asyncio.to_thread(self.sandbox.check, code, entry_point, cases, **options)

    async def run_program(self, code: str, stdin: str = "", **options: Any) -> Report:
        return await asyncio.to_thread(self.sandbox.run_program, code, stdin, **options)

    async def run_tests(self, code: str, test_source: str, entry_point: str, **options: Any) -> TestReport:
        return await asyncio.to_thread(self.sandbox.run_tests, code, test_source, entry_point, **options)
