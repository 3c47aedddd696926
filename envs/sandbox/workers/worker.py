"""Worker processes (also called zygotes), which fork a child process per run, and pools of workers."""

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
"""Start code of a worker process. It imports by file descriptor, so that runs cannot see the path of this package."""
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
    """Configuration of a worker process."""

    isolation: Isolation
    layout: Layout
    preload: tuple[str, ...]  # modules that are imported before the first fork
    is_judge: bool
    allow_threads: bool

    def configuration(self) -> bytes:
        layout, user = self.layout, None
        if os.geteuid() == 0 and (self.isolation in ("A", "C") or layout.is_open_to_others):
            user = _NOBODY  # otherwise root without capabilities, because `nobody` cannot read the standard library
        programs = None
        if self.isolation != "none":
            chosen = filters(
                allow_paths=self.isolation != "C",
                allow_threads=self.allow_threads,
                allow_uname=self.isolation == "A",
            )
            programs = chosen.zygote, chosen.run
        shown = ("paths", "visible", "hidden", "trees", "files", "listable")
        own = {name: getattr(self, name) for name in ("isolation", "preload", "is_judge", "allow_threads")}
        return marshal.dumps(
            {name: getattr(layout, name) for name in shown} | own | {"filters": programs, "user": user}
        )


# Fixed, so that all runs have the same order of sets of strings. The code must not know the hash seed of the tests.
_HASH_SEEDS: Final = {"PYTHONHASHSEED": "0"}, {"PYTHONHASHSEED": "1409"}


@contextmanager
def _package_folder() -> Iterator[int]:
    """Open the folder of the code that worker processes import. Descriptor 3 is skipped: it is their control socket."""
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
    """Worker process, which forks a child process per run. One run at a time; not thread-safe."""

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
            self._handshake()
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
                start_new_session=True,  # Ctrl-C must not reach the zygote
            )

    def _handshake(self) -> None:
        self._control.settimeout(_START_TIMEOUT_S)
        message = self._receive()
        if message == protocol.MAPPED:
            self._map_users()
            self._control.send(protocol.MAPPED)
            message = self._receive()
        self._control.settimeout(None)
        if message != protocol.READY:
            raise Broken(message.decode("utf-8", "replace") or "the worker's interpreter did not start")

    def _receive(self) -> bytes:
        try:
            return self._control.recv(4096)
        except OSError as error:
            raise Broken(f"the worker's interpreter does not reply: {error}") from error

    def _map_users(self) -> None:
        """Map the user `nobody` into the new user namespace. If this process is root, also map root, for mounts."""
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
        """Id of the started process. In isolation tier A, the worker process is a child of this process."""
        assert self._process is not None
        return self._process.pid

    def start(self, limits: Limits) -> ChildRun:
        """Fork a child process for one run. Raise Broken if the worker process has ended."""
        self.num_runs += 1
        return ChildRun(self._control, limits, can_kill_itself=self.plan.isolation == "none")

    def close(self) -> None:
        self._control.close()
        if self._process is None:
            return
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_STOP_TIMEOUT_S)
            return
        self._process.kill()
        self._process.wait()

    def abandon(self) -> None:
        """Close the control socket in a forked process, because the worker process belongs to the parent process."""
        self._control.close()
        if self._process is not None:
            self._process.returncode = 0  # not a child of this process; otherwise `Popen` would warn


class Pool:
    """Pool of up to `size` worker processes. Each serves one thread at a time, and at most `runs_per_worker` runs."""

    def __init__(self, make: Callable[[], Worker], size: int, runs_per_worker: int) -> None:
        self._make = make
        self._size = size
        self._runs_per_worker = runs_per_worker
        self._idle: list[Worker] = []  # never replaced, because the finalizer refers to this list
        self._reset()
        _pools.add(self)
        weakref.finalize(self, _close_all, self._idle)

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._places = threading.BoundedSemaphore(self._size)
        self._lent: set[Worker] = set()
        self._idle.clear()

    @contextmanager
    def lease(self) -> Iterator[Worker]:
        """Yield a worker for a `with` block. If the block raises, close the worker, because its state is unknown."""
        with self._places:
            with self._lock:
                worker = self._idle.pop() if self._idle else None
            worker = worker or self._make()
            self._lent.add(worker)
            is_sound = False
            try:
                yield worker
                is_sound = worker.num_runs < self._runs_per_worker
            finally:
                self._lent.discard(worker)
                if is_sound:
                    with self._lock:
                        self._idle.append(worker)
                else:
                    worker.close()

    @property
    def process_ids(self) -> tuple[int, ...]:
        with self._lock:
            return tuple(worker.process_id for worker in self._idle)

    def close(self) -> None:
        with self._lock:
            idle = self._idle[:]
            self._idle.clear()
        _close_all(idle)

    def abandon(self) -> None:
        """Reset the pool in a forked process, because its workers belong to the parent process."""
        for worker in (*self._idle, *self._lent):
            worker.abandon()
        self._reset()


def _close_all(workers: list[Worker]) -> None:
    while workers:
        workers.pop().close()


_pools: weakref.WeakSet[Pool] = weakref.WeakSet()


def _after_fork() -> None:
    for pool in list(_pools):
        pool.abandon()


os.register_at_fork(after_in_child=_after_fork)
