"""Information about the host that runs must not obtain, and errors of the host."""

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from collm.envs.sandbox import Case, Sandbox, SandboxError, SandboxUnavailable, isolation
from collm.envs.sandbox.workers import run as run_module
from collm.envs.sandbox.workers import worker as worker_module
from collm.envs.sandbox.workers.run import Broken

PACKAGE = Path(isolation.__file__).parent
FACTS = {
    "the host's name": "import os\ndef f(): return os.uname().nodename",
    "the host's name by the platform": "import platform\ndef f(): return platform.node()",
    "the host's name by C": """
import ctypes
def f():
    room = ctypes.create_string_buffer(400)
    return None if ctypes.CDLL(None).uname(room) else room.raw.decode('latin1')""",
    "the host's name by a socket": "import socket\ndef f(): return socket.gethostname()",
    "where this package lies": """
import gc, sys
def f():
    seen, frame = [sys.argv, sys.orig_argv, sys.path, list(sys.path_importer_cache)], sys._getframe()
    while frame:
        seen.append(frame.f_code.co_filename)
        frame = frame.f_back
    seen += [getattr(module, '__file__', None) for module in list(sys.modules.values())]
    return repr(seen) + repr([o.__code__.co_filename for o in gc.get_objects() if hasattr(o, '__code__')])""",
    "where this package lies, in memory": """
import ctypes, gc
def f():
    return ''.join(o if type(o) is str else repr(o)[:3000] for o in gc.get_objects() if type(o) in (dict, tuple, list))
""",
}


@pytest.mark.parametrize("tier", ["A", "B", "C"])
@pytest.mark.parametrize("name", FACTS)
def test_a_run_does_not_learn(sandbox_of: Callable[[str], Sandbox], tier: str, name: str) -> None:
    report = sandbox_of(tier).call(FACTS[name], "f", [()])
    told = repr((report.values, str(report.failure), [str(outcome.failure) for outcome in report.outcomes]))
    assert str(PACKAGE) not in told and str(Path(PACKAGE).resolve()) not in told
    if socket.gethostname() != "sandbox" and "name" in name:
        assert socket.gethostname() not in told


@pytest.mark.parametrize("tier", ["A", "B", "C"])
def test_the_load_and_the_peer_are_not_to_be_had(sandbox_of: Callable[[str], Sandbox], tier: str) -> None:
    code = """
import os
def f(level, option):
    import ctypes
    room, length = ctypes.create_string_buffer(64), ctypes.c_uint(64)
    return ctypes.CDLL(None).getsockopt(4, level, option, room, ctypes.byref(length))
def load():
    return os.getloadavg()
"""
    sandbox = sandbox_of(tier)
    assert sandbox.call(code, "load", [()]).outcomes[0].failure.kind == "OSError"
    if tier != "C":  # there, ctypes cannot be imported
        answers = sandbox.call(code, "f", [(1, 17), (1, 77), (1, 31), (1, 59), (0, 1)]).values
        assert answers == (-1,) * 5
        code = "import asyncio, platform, uuid\nasync def g(): return platform.system()\n"
        assert sandbox.call(code + "def f(): return asyncio.run(g())", "f", [()]).values == ("Linux",)


FEW_DESCRIPTORS = """
import resource, sys
sys.path.insert(0, sys.argv[1])
from sandbox import Case, Sandbox, SandboxError
opened = []
with Sandbox(1) as sandbox:
    if sys.argv[2] == "late": sandbox.start()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (5, hard))
    try:
        sandbox.check("def f(x): return x", "f", [Case((1,), 1)])
    except SandboxError as error:
        print(type(error).__name__, error)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    print(sandbox.check("def f(x): return x", "f", [Case((1,), 1)]).all_passed)
"""


@pytest.mark.parametrize("when", ["early", "late"])
def test_too_few_descriptors_are_said_with_the_remedy(when: str) -> None:
    command = [sys.executable, "-I", "-S", "-c", FEW_DESCRIPTORS, str(PACKAGE.parent), when]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120)
    *_, said, works_after = ran.stdout.splitlines() or [ran.stderr, ""]
    assert said.startswith("Sandbox") and "ulimit -n" in said, ran
    assert works_after == "True"


def test_a_machine_where_nothing_can_be_written_has_a_sandbox_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise FileNotFoundError("No usable temporary directory")

    monkeypatch.setattr(tempfile, "TemporaryDirectory", refuse)
    with Sandbox(1) as sandbox:
        assert sandbox.check("def f(x): return x", "f", [Case((1,), 1)]).all_passed


def test_a_tier_whose_probe_breaks_gives_way_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    holes, broken = isolation.holes, ["A"]

    def probe(worker: worker_module.Worker) -> list[str]:
        if worker.plan.isolation in broken:
            raise Broken("the zygote died")
        return holes(worker)

    monkeypatch.setattr(isolation, "holes", probe)
    with Sandbox(1) as sandbox:
        assert sandbox.isolation == "B"
    broken.append("B")
    with pytest.raises(SandboxUnavailable, match=r"A: the zygote died; B: the zygote died.*pidfd_open"):
        Sandbox(1).start()


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start processes of another user")
def test_threads_run_beside_many_processes_of_the_same_user() -> None:
    code = "import threading\ndef f():\n    t = threading.Thread(target=int)\n    t.start()\n    t.join()\n    return 1"
    others = [subprocess.Popen(["sleep", "60"], user=65534) for _ in range(70)]
    try:
        with Sandbox(1, isolation="C", allow_threads=True, preload=("random", "threading")) as sandbox:
            assert sandbox.call(code, "f", [()]).values == (1,)
    except SandboxUnavailable as error:
        pytest.skip(f"tier C: {error}")
    finally:
        for other in others:
            other.kill()
            other.wait()


@pytest.mark.parametrize("number, remedy", [(11, "ulimit -u"), (12, "num_workers"), (24, "ulimit -n"), (5, "error")])
def test_a_worker_that_cannot_be_started_is_reported_with_the_remedy(monkeypatch, number: int, remedy: str) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(worker_module.subprocess, "Popen", refuse)
    with pytest.raises(SandboxUnavailable, match=remedy):
        Sandbox(1).start()


def test_a_full_process_table_is_an_error_of_the_executor_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    with Sandbox(1) as sandbox:
        sandbox.start()
        not_started = (run_module.protocol.NOT_STARTED, 11, 0.0)

        class Full:
            size = run_module.protocol.ENDING.size
            unpack = staticmethod(lambda _: not_started)

        monkeypatch.setattr(run_module.protocol, "ENDING", Full)
        monkeypatch.setattr(isolation, "holes", lambda _: [])
        with pytest.raises(SandboxError, match=r"failed twice.*ulimit -u"):
            sandbox.check("def f(x): return x", "f", [Case((1,), 1)])


def test_no_pidfd_is_said_before_the_first_run(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = worker_module._BOOT.replace("import sys;", "import os, sys; os.pidfd_open = None;")
    monkeypatch.setattr(worker_module, "_BOOT", broken)
    with pytest.raises(SandboxUnavailable, match=r"A: TypeError.*B: TypeError.*pidfd_open"):
        Sandbox(1).start()
