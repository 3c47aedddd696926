"""Running untrusted Python: the public face of this package."""

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
    except Exception:  # a value that the predicate was not made for, such as a text for a number, is not accepted
        return False


class Sandbox:
    """Executor of code that may be hostile.

    A handle, not a resource: it owns no state of any run, its processes start when they are first needed, `close` ends
    them, and a later call starts new ones. A copy is the same sandbox; a pickled one comes back as the shared sandbox
    of the same settings, in whatever process. Any number of threads may use it.
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
        """
        Args:
            num_workers: runs at the same time; None: one for each usable processor.
            cpu_limit_s: processor seconds of one run; its limit on the clock is ten times as long.
            memory_limit_mb: MiB of one run on top of the interpreter's own.
            isolation: `auto`, a tier by name, or `none` to run unconfined.
            packages: installed packages that the code may import besides the standard library.
            allow_threads: whether the code may start threads.
            runs_per_worker: after so many runs a zygote is replaced.
            preload: modules imported once rather than in every run that uses them.

        Raises:
            ValueError: on a setting out of range.
        """
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
        """Values of a function of the code, called once for each set of arguments in one process.

        Args:
            code: Python source; not trusted.
            function: name of the function in it.
            arguments_list: positional arguments of each call; plain data.
            keywords: keyword arguments of every call; plain data.
            limits: in place of the sandbox's own.
            seed: of `random`, and of NumPy's global generator if it is there.

        Raises:
            SandboxError: if the executor failed; nothing is known about the code then.
            TypeError: if an argument is not plain data.
        """
        made = [(tuple(arguments), keywords or {}) for arguments in arguments_list]
        return self._call(code, function, made, limits, seed).report()

    def check(
        self, code: str, entry_point: str, cases: Iterable[Case], *, limits: Limits | None = None, seed: int = 0
    ) -> Verdict:
        """Cases that a function of the code passes. Only the cases' arguments enter the jail.

        Raises:
            SandboxError: if the executor failed; nothing is known about the code then.
            TypeError: if an argument is not plain data.
        """
        cases = list(cases)
        answers = self._call(code, entry_point, [(case.arguments, case.keywords) for case in cases], limits, seed)
        is_credible = answers.status not in ("malformed", "output_limit")
        pairs = zip(cases, answers.results, strict=True)
        return Verdict(answers.report(), tuple(is_credible and _passes(case, result) for case, result in pairs))

    def run_program(self, code: str, stdin: str = "", *, limits: Limits | None = None, seed: int = 0) -> Report:
        """The code as a main program: its stdout is in the report, and its one outcome says whether it failed.

        Raises:
            SandboxError: if the executor failed; nothing is known about the code then.
        """
        return self._attempt(lambda: self._run_program(code, stdin, limits or self.settings.limits, seed)).report()

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
        """Outcome of each test of a test source, which runs in a jail of its own and calls the code by value.

        Args:
            code: Python source; not trusted.
            test_source: assertions at module level, a function `check(candidate)`, or unittest classes.
            entry_point: what is under test, and what `check` is given; a function unless it is among `classes`.
            functions: further functions of the code that the tests call. They return plain data.
            classes: classes of the code that the tests instantiate. Their methods return plain data.
            support: trusted source that runs before the tests, such as the prompt whose helpers they use. The names
                under test replace its own.
            limits: in place of the sandbox's own; those of the tests are twice as wide.
            seed: of `random` and of NumPy's global generator, on each side another one that follows from it: code that
                could draw what the tests draw would know their inputs. None: drawn from the system.

        Raises:
            SandboxError: if the executor failed; nothing is known about the code then.
        """
        named = tuple(dict.fromkeys([entry_point, *functions]))
        plain = tuple(name for name in named if name not in classes)
        tests = relay.Tests(test_source, entry_point, plain, tuple(classes), support)
        chosen_seed = secrets.randbits(64) if seed is None else seed
        return self._attempt(lambda: self._run_tests(code, tests, limits or self.settings.limits, chosen_seed))

    @property
    def isolation(self) -> Isolation:
        """The tier in use; the first look starts a worker.

        Raises:
            SandboxUnavailable: if the machine offers no tier that holds.
        """
        if self._workshop.chosen is None:
            self.start()
        assert self._workshop.chosen is not None
        return self._workshop.chosen

    @property
    def process_ids(self) -> tuple[int, ...]:
        """Process ids of the workers that are idle now, those of the tests' jails last."""
        return self._solvers.process_ids + self._judges.process_ids

    def start(self) -> None:
        """Start one worker now rather than at the first call.

        Raises:
            SandboxUnavailable: if the machine offers no tier that holds.
        """
        with self._solvers.lease():
            pass

    def close(self) -> None:
        """End all idle processes. Idempotent, and not final: a later call starts new ones."""
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
        chosen = limits or self.settings.limits
        plain = calls.plain_calls(made)
        return self._attempt(
            lambda: self._lend(chosen, lambda worker: calls.call(worker, chosen, code, function, plain, seed))
        )

    def _run_program(self, code: str, stdin: str, limits: Limits, seed: int) -> calls.Answers:
        return self._lend(limits, lambda worker: calls.run_program(worker, limits, code, stdin, seed))

    def _run_tests(self, code: str, tests: relay.Tests, limits: Limits, seed: int) -> TestReport:
        # Leases before the share of the ceiling: who waits for a worker must not keep other sandboxes from running.
        memory_mb = 2 * limits.memory_mb  # the tests may have as much
        with self._solvers.lease() as solver, self._judges.lease() as judge, shared_ceiling().taken(memory_mb):
            return relay.run_tests(solver, judge, limits, code, tests, seed)

    def _lend(self, limits: Limits, job: Callable[[Worker], Result]) -> Result:
        with self._solvers.lease() as worker, shared_ceiling().taken(limits.memory_mb):
            return job(worker)

    def _attempt(self, job: Callable[[], Result]) -> Result:
        """The job's result, from new workers if the first attempt broke one."""
        try:
            return job()
        except Broken as error:
            _log.warning("sandbox: %s; trying again with a new worker", error)
            self.close()
        try:
            return job()
        except Broken as error:
            raise SandboxError(f"the executor failed twice: {error}") from error


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
    """The one sandbox of these settings in this process: many environments can hold it without each starting workers.

    Args:
        num_workers: runs at the same time; None: one for each usable processor.
        cpu_limit_s: processor seconds of one run.
        memory_limit_mb: MiB of one run on top of the interpreter's own.
        isolation: `auto`, a tier by name, or `none` to run unconfined.
        packages: installed packages that the code may import besides the standard library.

    Raises:
        ValueError: on a setting out of range.
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
    """A view of a sandbox whose calls wait in threads, so that the event loop goes on.

    At most `num_workers` run at once. Options are those of the sandbox's method of the same name.
    """

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox

    async def call(self, code: str, function: str, arguments_list: Iterable[Sequence[Any]], **options: Any) -> Report:
        """Values of a function of the code."""
        return await asyncio.to_thread(self.sandbox.call, code, function, arguments_list, **options)

    async def check(self, code: str, entry_point: str, cases: Iterable[Case], **options: Any) -> Verdict:
        """Cases that a function of the code passes."""
        return await asyncio.to_thread(self.sandbox.check, code, entry_point, cases, **options)

    async def run_program(self, code: str, stdin: str = "", **options: Any) -> Report:
        """The code as a main program."""
        return await asyncio.to_thread(self.sandbox.run_program, code, stdin, **options)

    async def run_tests(self, code: str, test_source: str, entry_point: str, **options: Any) -> TestReport:
        """Outcome of each test of a test source."""
        return await asyncio.to_thread(self.sandbox.run_tests, code, test_source, entry_point, **options)
