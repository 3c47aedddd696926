"""Selection of the isolation tier. In each new worker process, a self-check tries to break out of the sandbox.

A     namespaces, Landlock if available, seccomp, limits     most Linux systems, with or without root
B     Landlock, seccomp, limits                              systems without user namespaces
C     seccomp without calls that take a path, limits         on request only; only preloaded modules can be imported
none  limits                                                 only on request, for trusted code
"""

from __future__ import annotations

import logging
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

from . import values
from .confinement.layout import layout
from .exchange import calls
from .results import Failure
from .settings import Limits, SandboxUnavailable, Settings
from .workers.run import Broken
from .workers.worker import Isolation, Worker, ZygotePlan

_LIMITS: Final = Limits(cpu_s=5.0, wall_s=60.0, memory_mb=128)
_EFFECTS: Final = """
import os

def _succeeds(effect):
    try:
        return effect() is not False
    except (OSError, MemoryError, ValueError, ImportError):
        return False

def _touch(path):
    with open(path, "r+b") as file:
        file.write(b"x")

def _socket(family):
    import socket
    socket.socket(getattr(socket, family)).close()

def _open_for_writing(path):
    open(path, "r+b").close()

def _leave():
    if os.fork() == 0:
        os._exit(0)

def effects(outside, library, too_much):
    tries = {
        "read a file outside": lambda: open(outside, "rb").read(),
        "write a file outside": lambda: _touch(outside),
        "create a file outside": lambda: open(outside + ".new", "xb"),
        "list a folder outside": lambda: os.listdir(os.path.dirname(outside)),
        "write the standard library": lambda: _open_for_writing(library),
        "read another process's environment": lambda: open("/proc/%d/environ" % os.getppid(), "rb").read(),
        "make a network socket": lambda: _socket("AF_INET"),
        "make a local socket": lambda: _socket("AF_UNIX"),
        "fork": _leave,
        "execute a program": lambda: os.execv("/bin/true", ["true"]),
        "signal its parent": lambda: os.kill(os.getppid(), 0),
        "use more memory than it may": lambda: bytearray(too_much),
        "see environment variables": lambda: len(os.environ) > 0,
        "see the host's name": lambda: os.uname().nodename != "sandbox",
    }
    return [name for name, effect in tries.items() if _succeeds(effect)]
"""
_ALWAYS_EQUAL: Final = """
class Anything:
    def __eq__(self, other): return True
    def __hash__(self): return 0

def answer(): return Anything()
"""


def _can_import(worker: Worker) -> bool:
    code = "def imported():\n    import colorsys\n    return colorsys.ONE_THIRD > 0"
    return calls.call(worker, _LIMITS, code, "imported", calls.plain_calls([((), {})]), 0).report().values == (True,)


@contextmanager
def _file_outside() -> Iterator[Path]:
    """Yield a file outside of the jail that all users can write. If no folder is writable, yield this module's file."""
    for parent in (None, "/dev/shm"):
        with suppress(OSError):
            folder = tempfile.TemporaryDirectory(prefix="outside-", dir=parent)
            break
    else:
        yield Path(__file__)
        return
    with folder as path:
        outside = Path(path, "canary")
        outside.write_bytes(b"secret")
        Path(path).chmod(0o755)
        outside.chmod(0o666)
        yield outside


def holes(worker: Worker) -> list[str]:
    """Test a worker's isolation. Return the forbidden operations that succeeded and the allowed ones that failed."""
    with _file_outside() as outside:
        arguments = (str(outside), os.__file__, 2 * _LIMITS.memory_mb << 20)
        report = calls.call(worker, _LIMITS, _EFFECTS, "effects", calls.plain_calls([(arguments, {})]), 0).report()
    if report.status != "ok" or not report.outcomes[0].has_returned:
        return [f"could not finish the self-check ({report.failure or report.outcomes[0].failure})"]
    found = [f"could {name}" for name in report.values[0]]
    forged = calls.call(worker, _LIMITS, _ALWAYS_EQUAL, "answer", calls.plain_calls([((), {})]), 0).results[0]
    if not isinstance(forged, Failure) and values.is_equal(forged, 1):
        found.append("could return a value that equals every answer")
    if worker.plan.isolation != "C" and not _can_import(worker):
        found.append("could not import the standard library")
    return found


_HOW_TO: Final = (
    "Tier A needs user namespaces (in Docker: --security-opt seccomp=unconfined; on Ubuntu 24.04: sysctl "
    "kernel.apparmor_restrict_unprivileged_userns=0; elsewhere: sysctl user.max_user_namespaces above 0). "
    "Tier B needs Landlock (Linux 5.13, CONFIG_SECURITY_LANDLOCK, lsm=landlock). All tiers need seccomp and pidfd_open "
    "(Linux 5.3) on x86_64 or aarch64. isolation='none' runs trusted code without isolation."
)
_log = logging.getLogger(__name__)


class Workshop:
    """Factory of worker processes whose isolation is tested. The first worker determines the isolation tier."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.chosen: Isolation | None = None

    def make(self, *, is_judge: bool = False) -> Worker:
        """Start and test a worker. Raise SandboxUnavailable if no isolation tier works, Broken if one worked before."""
        if sys.platform != "linux":
            raise SandboxUnavailable(f"the sandbox needs Linux, not {sys.platform}; use a container or virtual machine")
        reasons = []
        for isolation in self._candidates():
            worker, reason = self._try(isolation, is_judge)
            if worker is not None:
                self._choose(isolation)
                return worker
            reasons.append(f"{isolation}: {reason}")
        if self.chosen is not None:
            raise Broken("; ".join(reasons))
        raise SandboxUnavailable(f"no isolation tier works on this machine. {'; '.join(reasons)}. {_HOW_TO}")

    def _candidates(self) -> tuple[Isolation, ...]:
        if self.chosen is not None:
            return (self.chosen,)
        asked = self._settings.isolation
        return ("A", "B") if asked == "auto" else (asked,)

    def _try(self, isolation: Isolation, is_judge: bool) -> tuple[Worker | None, str]:
        settings = self._settings
        visible = layout(settings.packages)
        plan = ZygotePlan(
            isolation, visible, settings.all_preload, is_judge=is_judge, allow_threads=settings.allow_threads
        )
        with ExitStack() as failed:
            try:
                worker = Worker(plan)
                failed.callback(worker.close)
                found = [] if isolation == "none" else holes(worker)
            except Broken as error:
                return None, str(error)
            if found:
                return None, f"code in the jail {', '.join(found)}"
            failed.pop_all()
            return worker, ""

    def _choose(self, isolation: Isolation) -> None:
        if self.chosen is None and isolation == "none":
            _log.warning("sandbox: isolation='none': code runs with the rights of this process")
        elif self.chosen is None and isolation != "A":
            _log.info("sandbox: isolation tier %s", isolation)
        self.chosen = isolation
