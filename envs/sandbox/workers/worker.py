"""One zygote process, as the trusted side holds it."""

from __future__ import annotations

import fcntl
import marshal
import os
import socket
import subprocess
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from ..confinement.layout import Layout
from ..confinement.seccomp import filters
from ..runtime import protocol
from ..settings import Limits
from .run import Broken, ChildRun, explained

Isolation = Literal["A", "B", "C", "none"]

_BOOT: Final = (
    "import sys; sys.path[0] = '/proc/self/fd/' + sys.argv[1]; from runtime.zygote import main; del sys.path[0]; main()"
)
"""By descriptor rather than by path, so that where this package lies on the host is nowhere in the jail."""
_START_TIMEOUT_S: Final = 60.0
_STOP_TIMEOUT_S: Final = 5.0
_NOBODY: Final = 65534
_ENVIRONMENT: Final = {
    "PATH": "/usr/bin:/bin",
    "LC_ALL": "C.UTF-8",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}


@dataclass(frozen=True)
class ZygotePlan:
    """How a zygote is to be made."""

    isolation: Isolation
    layout: Layout
    preload: tuple[str, ...]
    """Modules imported once, before the first fork. Each makes every run a little dearer, and its first import free."""
    is_judge: bool
    allow_threads: bool

    def configuration(self) -> bytes:
        """What the zygote has to know, as it reads it."""
        layout, user = self.layout, None
        if os.geteuid() == 0 and (self.isolation in ("A", "C") or layout.is_open_to_others):
            user = _NOBODY  # else root without any capability, which Landlock holds as well, so that imports work
        programs = None
        if self.isolation != "none":
            chosen = filters(
                allow_paths=self.isolation != "C",
                allow_threads=self.allow_threads,
                allow_uname=self.isolation == "A",
            )
            programs = chosen.zygote, chosen.run
        return marshal.dumps(
            {
                "isolation": self.isolation,
                "filters": programs,
                "paths": layout.paths,
                "visible": layout.visible,
                "hidden": layout.hidden,
                "trees": layout.trees,
                "files": layout.files,
                "listable": layout.listable,
                "preload": self.preload,
                "is_judge": self.is_judge,
                "allow_threads": self.allow_threads,
                "user": user,
            }
        )


# The order of a set of strings must not differ from run to run, nor tests hash as the code under test does.
_HASH_SEEDS: Final = {"PYTHONHASHSEED": "0"}, {"PYTHONHASHSEED": "1409"}


@contextmanager
def _package_folder() -> Iterator[int]:
    """Descriptor of the folder that holds the zygote's code; not 3, where the zygote puts its control socket."""
    found = os.open(Path(__file__).parents[1], os.O_PATH | os.O_DIRECTORY)
    try:
        folder = fcntl.fcntl(found, fcntl.F_DUPFD_CLOEXEC, 4)
    finally:
        os.close(found)
    try:
        yield folder
    finally:
        os.close(folder)


class Worker:
    """A zygote and the control socket to it. One run at a time, from one thread at a time."""

    def __init__(self, plan: ZygotePlan) -> None:
        self.plan = plan
        self.num_runs = 0
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        except OSError as error:
            raise Broken(explained("a socket for a worker", error)) from error
        try:
            self._spawn(plan, theirs)
            self._greet()
        except BaseException as error:
            self.close()
            if isinstance(error, OSError):
                raise Broken(explained("a worker process", error)) from error
            raise

    def _spawn(self, plan: ZygotePlan, theirs: socket.socket) -> None:
        with theirs, _package_folder() as folder:
            self._control.send(plan.configuration())
            self._process = subprocess.Popen(
                [plan.layout.interpreter, "-s", "-S", "-B", "-c", _BOOT, str(folder), str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={**_ENVIRONMENT, **_HASH_SEEDS[plan.is_judge]},
                cwd="/",
                pass_fds=(theirs.fileno(), folder),
                start_new_session=True,  # an interrupt from the keyboard is for the trusted side to handle
            )

    def _greet(self) -> None:
        self._control.settimeout(_START_TIMEOUT_S)
        message = self._hear()
        if message == protocol.MAPPED:
            self._map_users()
            self._control.send(protocol.MAPPED)
            message = self._hear()
        self._control.settimeout(None)
        if message != protocol.READY:
            raise Broken(message.decode("utf-8", "replace") or "the interpreter did not start")

    def _hear(self) -> bytes:
        try:
            return self._control.recv(4096)
        except OSError as error:
            raise Broken(f"the interpreter does not answer: {error}") from error

    def _map_users(self) -> None:
        """Give the new user namespace the one user it will run as, and for root itself while it still mounts."""
        process = Path("/proc", str(self.process_id))
        try:
            if os.geteuid() == 0:
                both = f"0 0 1\n{_NOBODY} {_NOBODY} 1"
                (process / "gid_map").write_text(both)
                (process / "uid_map").write_text(both)
            else:
                (process / "setgroups").write_text("deny")
                (process / "gid_map").write_text(f"{_NOBODY} {os.getegid()} 1")
                (process / "uid_map").write_text(f"{_NOBODY} {os.geteuid()} 1")
        except OSError as error:
            raise Broken(f"users cannot be mapped into a namespace: {error}") from error

    @property
    def process_id(self) -> int:
        """Id of the process that was started; in tier A it only waits for the zygote."""
        assert self._process is not None
        return self._process.pid

    def start(self, limits: Limits) -> ChildRun:
        """Fork a child for one run.

        Raises:
            Broken: if the zygote is gone.
        """
        self.num_runs += 1
        return ChildRun(self._control, limits, can_kill_itself=self.plan.isolation == "none")

    def close(self) -> None:
        """End the zygote and, with it, whatever runs. Idempotent."""
        self._control.close()
        if self._process is None:
            return
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_STOP_TIMEOUT_S)
            return
        self._process.kill()
        self._process.wait()

    def abandon(self) -> None:
        """Drop our copy of the socket in a forked process; the zygote belongs to the parent."""
        self._control.close()
        if self._process is not None:
            self._process.returncode = 0  # not our child: nothing to wait for, nothing to warn about


class _Stock:
    """The workers of a pool; apart from it so that they can be ended after it is gone."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.reset()

    def reset(self) -> None:
        self.owner = os.getpid()
        self.lock = threading.Lock()
        self.places = threading.BoundedSemaphore(self.size)
        self.idle: list[Worker] = []
        self.lent: set[Worker] = set()

    def close(self) -> None:
        if os.getpid() != self.owner:
            return
        with self.lock:
            idle, self.idle = self.idle, []
        for worker in idle:
            worker.close()

    def abandon(self) -> None:
        """In a forked process: the workers stay the parent's, and threads that held the locks do not exist here."""
        for worker in (*self.idle, *self.lent):
            worker.abandon()
        self.reset()


_stocks: weakref.WeakSet[_Stock] = weakref.WeakSet()


def _after_fork() -> None:
    for stock in list(_stocks):
        stock.abandon()


os.register_at_fork(after_in_child=_after_fork)


class Pool:
    """At most `size` workers, each used by one thread at a time."""

    def __init__(self, make: Callable[[], Worker], size: int, runs_per_worker: int) -> None:
        """
        Args:
            make: a new worker that has been found sound.
            size: how many threads can run code at the same time; further ones wait.
            runs_per_worker: after this many runs a worker is replaced.
        """
        self._make = make
        self._runs_per_worker = runs_per_worker
        self._stock = _Stock(size)
        _stocks.add(self._stock)
        self._finalizer = weakref.finalize(self, self._stock.close)

    @contextmanager
    def lease(self) -> Iterator[Worker]:
        """A worker for the duration of the block; if that raises, its state is unknown and it is thrown away."""
        stock = self._stock
        with stock.places:
            with stock.lock:
                worker = stock.idle.pop() if stock.idle else None
            worker = worker or self._make()
            stock.lent.add(worker)
            is_sound = False
            try:
                yield worker
                is_sound = worker.num_runs < self._runs_per_worker
            finally:
                stock.lent.discard(worker)
                if is_sound:
                    with stock.lock:
                        stock.idle.append(worker)
                else:
                    worker.close()

    @property
    def process_ids(self) -> tuple[int, ...]:
        """Process ids of the workers that are idle now."""
        with self._stock.lock:
            return tuple(worker.process_id for worker in self._stock.idle)

    def close(self) -> None:
        """End the idle workers; a later lease makes new ones."""
        self._stock.close()
