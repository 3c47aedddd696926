"""Worker process (zygote), which confines itself, forks a child process per run, and reports the end of each child.

The worker process never reads code, inputs or results. Therefore a child inherits no data of earlier runs. It imports
few modules, because forks are faster for a small process.
"""

from __future__ import annotations

import _socket  # smaller than `socket`
import gc
import importlib
import marshal
import os
import posix
import select
import signal
import sys
import time
from typing import Any, NoReturn

from . import child, frames, jail, kernel, solution
from .protocol import BY_ITSELF, CPU_LIMIT, ENDING, MAPPED, NOT_STARTED, READY, REQUEST, STOPPED, WALL_LIMIT

_CONTROL = 3
_FAILED = 70
_MAX_CONFIGURATION = 1 << 18
_MAX_THREADS = 64
_WARM_UP = """
import math
class C:
    def m(self): return [i for i in range(9)]
def f(x):
    try: return sorted(str(x)) + [C().m(), {1: (2.5, {3})}]
    except ValueError as e: raise
"""


class Zygote:
    """Worker process that forks one child process at a time and enforces its limits."""

    def __init__(self, config: dict[str, Any], control: _socket.socket, folder: int) -> None:
        self._config = config
        self._folder = folder
        self._control = control
        self._isolation: str = config["isolation"]
        self._base_bytes = 0
        self._max_tasks = _MAX_THREADS
        self._install_filter = kernel.filter_installer(config["filters"][1]) if config["filters"] else None
        self._streams = solution.Streams()

    def prepare(self) -> None:
        """Import modules, run some code to initialize objects, and confine this process."""
        sys.path.extend(self._config["paths"])
        self._preload()
        self._warm_up()
        with open("/proc/self/statm", encoding="ascii") as memory:
            self._base_bytes = int(memory.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        if self._config["allow_threads"] and self._isolation != "A":  # the limit counts all threads of the user
            user = self._config["user"]
            self._max_tasks += jail.num_tasks(os.getuid() if user is None else user)
        os.close(os.pidfd_open(os.getpid()))  # needs Linux 5.3; fails here instead of in the first run
        if self._isolation != "none":
            self._confine()
        if self._isolation in ("B", "C"):
            self._hide_host()
        for ignored in (signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(ignored, signal.SIG_IGN)
        jail.limit(kernel.RLIMIT_CORE, 0)
        jail.limit(kernel.RLIMIT_FSIZE, 0)
        jail.limit(kernel.RLIMIT_MEMLOCK, 0)
        jail.limit(kernel.RLIMIT_NOFILE, 32)
        jail.limit(kernel.RLIMIT_STACK, 8 << 20)
        os.environ.clear()
        if self._config["filters"]:
            kernel.filter_installer(self._config["filters"][0])()
        gc.disable()
        gc.collect()
        gc.freeze()

    def _preload(self) -> None:
        register = os.register_at_fork
        os.register_at_fork = lambda **_: None  # otherwise `random` would seed itself in every child
        try:
            for name in self._config["preload"]:
                importlib.import_module(name)
        finally:
            os.register_at_fork = register
        if self._config["is_judge"]:
            from . import judge  # it imports unittest and json, which would make the forks of solvers slower

            child.MODES["judge"] = judge.run
        os.close(self._folder)  # all modules of this package are imported

    def _warm_up(self) -> None:
        """Run a fixed program in this process, so that children inherit initialized objects."""
        self._streams.attach()
        request = {"code": _WARM_UP, "function": "f", "calls": [((5,), {})], "seed": 0, "stdin": "", "mode": "calls"}
        for _ in range(3):
            ours, theirs = os.pipe(), os.open("/dev/null", os.O_WRONLY)
            os.write(ours[1], frames.pack({**request, "max_stdout_length": 10}))
            os.dup2(theirs, ours[1])
            child.answer(ours[0], ours[1], self._streams)
            for descriptor in (*ours, theirs):
                os.close(descriptor)
        del sys.modules["solution"]
        solution.seed_generators(0)

    def _confine(self) -> None:
        config = self._config
        if self._isolation == "A":
            jail.enter_namespaces()
            self._control.send(MAPPED)
            if self._control.recv(16) != MAPPED:
                raise OSError("the host could not map users into the namespace")
            kernel.set_host_name("sandbox")
            jail.build_root(config["visible"], config["hidden"])
            self._become_first_process()
        user = config["user"]
        jail.drop_bounding_set()
        if user is not None:
            jail.become(user)
        if self._isolation == "B" or (self._isolation == "A" and jail.landlock_version() > 0):
            jail.restrict_paths(config["trees"], config["files"], config["listable"], ["/dev/null"])
        jail.drop_capabilities()
        jail.seal(die_with_parent=self._isolation == "A")

    def _hide_host(self) -> None:
        """Replace `os.uname`, because the filter of tiers B and C refuses its system call."""
        system, _, *others = os.uname()
        shown = os.uname_result((system, "sandbox", *others))
        os.uname = posix.uname = lambda: shown

    def _become_first_process(self) -> None:
        """Fork, so that the child is the first process of the namespace. The parent only waits for the child's end."""
        first = os.fork()
        if first:
            os.close(_CONTROL)
            os.waitpid(first, 0)
            os._exit(0)

    def serve(self) -> NoReturn:
        """Fork a child for each request, until the control socket is closed."""
        control, space = self._control, _socket.CMSG_SPACE(4)
        poller, memory_limit = select.poll(), 0
        poller.register(_CONTROL, select.POLLIN)
        while True:
            message, ancillary, _, _ = control.recvmsg(REQUEST.size, space)
            if not message:
                os._exit(0)
            if not ancillary:  # a stop request that arrived after the end of its run
                continue
            channel = int.from_bytes(ancillary[0][2][:4], sys.byteorder)
            cpu_s, wall_s, memory_bytes = REQUEST.unpack(message)
            if memory_bytes != memory_limit:  # the child inherits this limit, and its filter forbids to raise it
                memory_limit = memory_bytes
                kernel.set_limits(kernel.RLIMIT_AS, self._base_bytes + memory_bytes, kernel.UNLIMITED)
            try:
                pid = os.fork()
            except OSError as error:
                os.close(channel)
                control.send(ENDING.pack(NOT_STARTED, error.errno or 0, 0.0))
                continue
            if pid == 0:
                self._be_child(channel)
            os.close(channel)
            control.send(self._watch(poller, pid, cpu_s, wall_s))
            os.set_blocking(0, True)  # the only state that a run could change: a flag of the shared /dev/null

    def _watch(self, poller: select.poll, pid: int, cpu_s: float, wall_s: float) -> bytes:
        """Wait for the child, kill it at its limits, and return the report of its end."""
        watched = os.pidfd_open(pid)
        poller.register(watched, select.POLLIN)
        clock = (~pid << 3) | 2  # the process's CPU clock, see clock_getcpuclockid()
        cause, wait_s = BY_ITSELF, min(cpu_s, wall_s)
        deadline = time.monotonic() + wall_s
        while not (events := poller.poll(wait_s * 1000 + 1)):
            # One thread uses at most one CPU second per second, so the process is checked again after the time left.
            cpu_left_s, wall_left_s = cpu_s - time.clock_gettime(clock), deadline - time.monotonic()
            if cpu_left_s <= 0 or wall_left_s <= 0:
                cause = CPU_LIMIT if cpu_left_s <= 0 else WALL_LIMIT
                break
            wait_s = min(cpu_left_s, wall_left_s)
        else:
            if events[0][0] == _CONTROL and len(events) == 1:
                cause = STOPPED
        if cause != BY_ITSELF:
            os.kill(pid, signal.SIGKILL)
            if cause == STOPPED and not self._control.recv(16):
                os._exit(0)
            poller.unregister(_CONTROL)
            poller.poll()
            poller.register(_CONTROL, select.POLLIN)
        used_s = time.clock_gettime(clock)  # the process has ended but is not reaped, so its clock is stopped
        _, status = os.waitpid(pid, 0)
        poller.unregister(watched)
        os.close(watched)
        if used_s >= cpu_s and cause != STOPPED:
            cause = CPU_LIMIT  # even if the process ended before the next check, so that timing does not matter
        return ENDING.pack(cause, status, used_s)

    def _be_child(self, channel: int) -> NoReturn:
        try:
            os.close(_CONTROL)
            if self._isolation != "A":  # in tier A, the end of the first process ends its namespace
                kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
            if self._config["allow_threads"] or self._install_filter is None:  # otherwise the filter forbids threads
                jail.limit(kernel.RLIMIT_NPROC, self._max_tasks)
            if self._install_filter is not None:
                self._install_filter()
            os.write(channel, frames.SEALED)
            child.answer(channel, channel, self._streams)
            os._exit(0)
        finally:
            os._exit(_FAILED)


def main() -> NoReturn:
    """Run a worker process. Its arguments are the file descriptors of this package's folder and the control socket."""
    folder, descriptor = map(int, sys.argv[1:])
    sys.argv = [""]
    if descriptor != _CONTROL:
        os.dup2(descriptor, _CONTROL, inheritable=False)
    null = os.open("/dev/null", os.O_RDWR)
    for standard in range(_CONTROL):
        os.dup2(null, standard)
    os.closerange(_CONTROL + 1, folder)
    os.closerange(folder + 1, 1 << 16)
    control = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET, 0, _CONTROL)
    try:
        zygote = Zygote(marshal.loads(os.read(_CONTROL, _MAX_CONFIGURATION)), control, folder)
        zygote.prepare()
    except BaseException as error:
        control.send(f"{type(error).__name__}: {error}"[:2000].encode())
        os._exit(_FAILED)
    for name in [name for name in sys.modules if name.partition(".")[0] == __package__]:
        del sys.modules[name]
    control.send(READY)
    zygote.serve()
