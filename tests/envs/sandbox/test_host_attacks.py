"""Attacks on the host: files, network, other processes, the kernel."""

import hashlib
import json
import os
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from collm.envs.sandbox import Sandbox
from collm.envs.sandbox.confinement.seccomp import Filters
from collm.envs.sandbox.workers import worker

pytestmark = pytest.mark.skipif(os.uname().machine != "x86_64", reason="the attacks use numbers of x86_64's calls")

RAW = """
import ctypes, errno, os
libc = ctypes.CDLL(None, use_errno=True)
def fails(nr, *args):
    r = libc.syscall(ctypes.c_long(nr), *[ctypes.c_long(a) if isinstance(a, int) else a for a in args])
    return r == -1
"""
FILES = {
    "overwrite the canary": "open(CANARY, 'w').write('owned')",
    "append to the canary by every flag": """
import os
for flags in (os.O_WRONLY, os.O_RDWR, os.O_WRONLY | os.O_APPEND, os.O_WRONLY | os.O_TRUNC, os.O_PATH):
    try: os.write(os.open(CANARY, flags), b'owned')
    except OSError: pass""",
    "create files": """
import os
for d in ('/tmp', '/var/tmp', '/dev/shm', '/root', '.', '/', '/scratch', '/etc', os.path.dirname(CANARY)):
    for p in (d + '/ESCAPED_' + NONCE,):
        try: open(p, 'w').write('x')
        except OSError: pass
        for make in (os.mkdir, os.mkfifo, lambda p: os.symlink('/', p), lambda p: os.link(CANARY, p), os.mknod):
            try: make(p)
            except OSError: pass
        try: os.open(d, os.O_TMPFILE | os.O_RDWR)
        except OSError: pass""",
    "remove, rename, truncate, chmod the canary": """
import os
for g in (os.unlink, lambda p: os.rename(p, p + NONCE), lambda p: os.truncate(p, 0), lambda p: os.chmod(p, 0),
          lambda p: os.utime(p, (0, 0)), lambda p: os.chown(p, 1, 1), lambda p: os.setxattr(p, 'user.x', b'x')):
    try: g(CANARY)
    except OSError: pass
    else: raise AssertionError""",
    "overwrite the standard library": """
import os, re, string
for m in (re, os, string):
    for p in (m.__file__, m.__cached__):
        for mode in ('a', 'r+b', 'wb'):
            try:
                with open(p, mode) as h: h.write(b'' if 'b' in mode else '')
            except (OSError, TypeError): continue
            raise AssertionError(p)""",
    "mount and change the root": """RAW
assert fails(272, 0x10000000) and fails(272, 0x20000)
assert fails(165, b'x', b'/', b'tmpfs', 0, 0) and fails(166, b'/', 2) and fails(161, b'/') and fails(155, b'.', b'.')
assert fails(428, -100, b'/', 1) and fails(429, 0, 0, 0, 0) and fails(430, b'tmpfs', 0) and fails(308, 3, 0)""",
    "gain rights": """RAW
assert fails(105, 0) and fails(106, 0) and fails(117, 0, 0, 0) and fails(113, 0, 0) and fails(126, 0, 0)
assert fails(157, 38, 0, 0, 0, 0) and fails(157, 4, 1, 0, 0, 0) and fails(90, b'/', 0o4777)
assert os.getuid() == os.geteuid()""",
    "load code into the kernel": """RAW
assert fails(175, 0, 0, b'') and fails(313, 3, b'', 0) and fails(246, 0, 0, 0, 0) and fails(169, 0, 0, 0, 0)""",
}
NETWORK = {
    "connect to a listener": """
import socket
s = socket.socket(); s.settimeout(1); s.connect(('127.0.0.1', PORT)); s.send(b'hi')""",
    "connect to an abstract listener": """
import socket
s = socket.socket(socket.AF_UNIX); s.settimeout(1); s.connect(ABSTRACT); s.send(b'hi')""",
    "use a socket pair to reach a listener": """
import socket
for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET):
    a, b = socket.socketpair(socket.AF_UNIX, kind)
    for g in (lambda: a.connect(ABSTRACT), lambda: a.sendto(b'hi', ABSTRACT), lambda: a.bind(ABSTRACT + 'x'),
              lambda: a.sendmsg([b'hi'], [], 0, ABSTRACT), lambda: a.listen()):
        try: g()
        except OSError: continue
        raise AssertionError""",
    "sockets of every family": """RAW
for family in range(46):
    for kind in (1, 2, 3, 5): assert fails(41, family, kind, 0), family
    if family != 1: assert fails(53, family, 1, 0, ctypes.create_string_buffer(8)), family""",
    "sockets by the 32-bit entry": """
import ctypes, mmap
m = mmap.mmap(-1, 4096, prot=7)
m.write(bytes([0x53, 0xb8, 0x67, 1, 0, 0, 0xbb, 2, 0, 0, 0, 0xb9, 1, 0, 0, 0, 0x31, 0xd2, 0xcd, 0x80, 0x5b, 0xc3]))
g = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(m)))
assert g() < 0""",
    "sockets by x32 numbers": """RAW
assert fails(0x40000000 + 41, 2, 1, 0) and fails(0x40000000 + 57)""",
    "rings": """RAW
p = ctypes.create_string_buffer(120)
assert fails(425, 8, p) and fails(426, 3, 1, 0, 0, 0, 0) and fails(427, 3, 0, 0, 0) and fails(206, 8, p)""",
    "resolve and fetch": """
import urllib.request
urllib.request.urlopen('http://127.0.0.1:%d/' % PORT, timeout=1)""",
}
PROCESSES = {
    "fork bomb": "import os\nwhile True: os.fork()",
    "raw forks": """RAW
assert fails(57) and fails(58) and fails(56, 17, 0, 0, 0, 0) and fails(56, 0x100, 0, 0, 0, 0) and fails(435, 0, 0)
assert fails(435, ctypes.create_string_buffer(88), 88)""",
    "programs": """
import os, subprocess, sys
n = 0
for g in (lambda: os.system('touch /tmp/ESCAPED_' + NONCE) == 0, lambda: os.execv('/bin/sh', ['sh', '-c', 'true']),
          lambda: subprocess.run(['/bin/sh', '-c', 'true']).returncode == 0, lambda: os.popen('id').read(),
          lambda: os.posix_spawn('/bin/true', ['true'], {}), lambda: os.execve('/bin/true', ['x'], {})):
    try: n += bool(g())
    except (OSError, ValueError): pass
assert n == 0""",
    "threads": """
import threading
def f(x):
    threading.Thread(target=print).start()""",
    "kill everybody": """
import os, signal
for p in (os.getppid(), 1, 2, 3, -1, 0):
    for s in (9, 15, 19, 2):
        try: os.kill(p, s)
        except OSError: pass""",
    "kill by raw calls": """RAW
for pid in (1, 2, os.getppid(), os.getpid(), 0, -1):
    assert fails(62, pid, 9) and fails(200, pid, 9) and fails(234, pid, pid, 9) and fails(129, pid, 9, 0)
    assert fails(424, pid, 9, 0, 0) and fails(297, pid, pid, 9, 0)""",
    "limits and priorities of itself and others": """RAW
import resource
for w in (resource.RLIMIT_AS, resource.RLIMIT_CPU, resource.RLIMIT_NPROC, resource.RLIMIT_NOFILE):
    for v in (0, -1, 1):
        try: resource.setrlimit(w, (v, v))
        except (OSError, ValueError): continue
        raise AssertionError(w)
p = ctypes.create_string_buffer(16)
for pid in (0, 1, os.getppid()):
    assert fails(302, pid, 7, p, 0) and fails(141, 0, pid, -20) and fails(144, pid, 1, p) and fails(203, pid, 8, p)
try: os.nice(-5)
except OSError: pass
else: raise AssertionError""",
    "signals ignored": """
import signal
for s in range(1, 65):
    try: signal.signal(s, signal.SIG_IGN)
    except (OSError, ValueError): pass
signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
while True: pass""",
    "control groups and kernel settings": """
for p, v in (('/sys/fs/cgroup/cgroup.procs', '0'), ('/proc/self/oom_score_adj', '-1000'),
             ('/proc/sys/kernel/core_pattern', '|/bin/sh'), ('/proc/self/uid_map', '0 0 1')):
    try: open(p, 'w').write(v)
    except OSError: continue
    raise AssertionError(p)""",
    "another session": """RAW
assert fails(112) and fails(109, 0, 0) and fails(157, 1, 0) and fails(157, 36, 1) and fails(101, 0, 0, 0, 0)""",
}
KERNEL = {
    "memory outside of the limit": """RAW
assert fails(319, b'x', 0) and fails(29, 0, 1 << 30, 0o1666) and fails(64, 0, 1, 0o1666) and fails(68, 0, 0o1666)
assert fails(240, b'/x', 66, 0o600, 0) and fails(447, 0) and fails(149, 0, 4096) and fails(151, 3)""",
    "rarely used doors": """RAW
for nr in (321, 298, 323, 250, 248, 249, 175, 313, 169, 135, 134, 139, 272, 308, 165, 153, 154, 172, 173,
           177, 179, 180, 212, 246, 256, 279, 300, 301, 303, 304, 305, 310, 311, 320, 322, 324,
           442, 443, 444, 445, 446, 448, 450, 451):
    assert fails(nr, 0, 0, 0, 0, 0), nr""",
    "descriptor passing and flags": """RAW
import socket
a, b = socket.socketpair()
try: socket.send_fds(a, [b'x'], [0])
except OSError: pass
else: raise AssertionError
for fd in range(5): assert fails(72, fd, 4, 0o4000) and fails(72, fd, 8, 1) and fails(72, fd, 1033, 1)""",
    "terminal input": """RAW
x = ctypes.create_string_buffer(b'x')
for fd in range(5): assert fails(16, fd, 0x5412, x) and fails(16, fd, 0x541C) and fails(16, fd, 0x540E)""",
}
ATTACKS = {
    name: code.replace("RAW", RAW, 1) + ("" if "def f(" in code else "\ndef f(x): return x")
    for name, code in (FILES | NETWORK | PROCESSES | KERNEL).items()
}


@pytest.mark.parametrize("tier", ["A", "B", "C"])
@pytest.mark.parametrize("name", ATTACKS)
def test_no_attack_reaches_outside(attack: Callable[..., object], tier: str, name: str) -> None:
    sources = [Path(module.__file__) for module in (os, json, hashlib)]
    before = [path.read_bytes() for path in sources]
    report = attack(tier, ATTACKS[name])
    assert [path.read_bytes() for path in sources] == before
    assert report.failure is None or report.failure.kind != "AssertionError", f"a door is open: {report.failure}"


# Without filters these attacks must succeed; otherwise they would test nothing. Namespaces are still active.
OPEN_WITHOUT_FILTERS = [
    *("mount and change the root", "sockets of every family", "sockets by the 32-bit entry", "raw forks", "threads"),
    *("limits and priorities of itself and others", "memory outside of the limit", "rarely used doors"),
]


@pytest.fixture(scope="module")
def unfiltered() -> Iterator[Sandbox]:
    everything = struct.pack("HBBI", 0x06, 0, 0, 0x7FFF0000)  # one instruction: return "allow"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(worker, "filters", lambda **_: Filters(everything, everything))
        patch.setattr("collm.envs.sandbox.isolation.holes", lambda _: [])
        sandbox = Sandbox(1, isolation="A")
        try:
            sandbox.start()
        except Exception as error:
            pytest.skip(f"no namespaces here: {error}")
        yield sandbox
        sandbox.close()


@pytest.mark.parametrize("name", OPEN_WITHOUT_FILTERS)
def test_without_the_filter_the_attack_gets_through(unfiltered: Sandbox, outside, name: str) -> None:
    report = unfiltered.call(outside.header() + ATTACKS[name], "f", [(1,)])
    got_through = report.failure is not None and report.failure.kind == "AssertionError"
    did_start = name == "threads" and report.outcomes[0].has_returned
    spoke_twice = name == "raw forks" and report.status == "malformed"
    assert got_through or did_start or spoke_twice


def test_an_unconfined_run_can_make_processes_and_connect_to_the_listeners(outside) -> None:
    with Sandbox(1, isolation="none") as sandbox:
        code = "import subprocess\ndef f(x):\n    return subprocess.run(['/bin/echo', x], capture_output=True).stdout"
        assert sandbox.call(code, "f", [("hi",)]).values == (b"hi\n",)
        for name in ("connect to a listener", "connect to an abstract listener"):
            assert sandbox.call(outside.header() + ATTACKS[name], "f", [(1,)]).status == "ok"
    assert len(outside.damage()) == 2
    assert outside.damage() == []
