"""Whether a worker holds, found out by trying: what a kernel claims to support is not always what it does."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from .. import values
from ..exchange import calls
from ..limits import Limits
from ..results import Failure
from ..workers.worker import Worker

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
    """A file that anybody may read and write, so that only the jail stands in the way; on a machine where nothing can
    be written, as in a read-only container, a file that can be read."""
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
    """What code in this worker can do that it must not, or cannot do that it must; empty if the worker is sound.

    Raises:
        Broken: if the executor failed.
    """
    with _file_outside() as outside:
        arguments = (str(outside), os.__file__, 2 * _LIMITS.memory_mb << 20)
        report = calls.call(worker, _LIMITS, _EFFECTS, "effects", calls.plain_calls([(arguments, {})]), 0).report()
    if report.status != "ok" or not report.outcomes[0].has_returned:
        return [f"could not run a probe to its end ({report.failure or report.outcomes[0].failure})"]
    found = [f"could {name}" for name in report.values[0]]
    forged = calls.call(worker, _LIMITS, _ALWAYS_EQUAL, "answer", calls.plain_calls([((), {})]), 0).results[0]
    if not isinstance(forged, Failure) and values.is_equal(forged, 1):
        found.append("could pass for any answer")
    if worker.plan.isolation != "C" and not _can_import(worker):
        found.append("could not import the standard library")
    return found
