"""Attacks that search for expected answers, for data of other runs, or for data of the host."""

import secrets
from collections.abc import Callable

import pytest

from collm.envs.sandbox import Case, Sandbox

ATTACKS = {
    "frames": """
import sys
def f(x):
    o = []
    fr = sys._getframe()
    while fr:
        o.append(repr(fr.f_locals)[:20000] + repr(list(fr.f_globals.items()))[:20000]); fr = fr.f_back
    return ''.join(o)""",
    "frames of an exception": """
def f(x):
    try: 1 / 0
    except ZeroDivisionError as e: fr = e.__traceback__.tb_frame
    o = []
    while fr: o.append(repr(fr.f_locals)[:50000]); fr = fr.f_back
    return ''.join(o)""",
    "every object": """
import gc
def f(x):
    o = []
    for ob in gc.get_objects():
        try: o.append(repr(ob)[:300])
        except Exception: pass
    return ''.join(o)[:400000]""",
    "processes": """
import os
def f(x):
    o = []
    for p in ['/proc/self/environ', '/proc/1/environ', '/proc/self/maps', '/proc/1/maps', '/proc/1/cmdline',
              '/proc/self/mounts', '/proc/1/mem', '/proc/self/mem', '/proc/%d/environ' % os.getppid(), '/proc/keys']:
        try: o.append(open(p, 'rb').read(20000).decode('latin1'))
        except OSError: pass
    assert not o
    return repr(os.listdir('/proc'))""",
    "files by path": """
import os
def f(x):
    o = []
    for p in [CANARY, '/etc/passwd', '/etc/hosts', '/root/.bashrc', '/etc/shadow', os.path.expanduser('~/.ssh/id_rsa'),
              '/sys/class/net/lo/address', '/dev/vda', '/dev/mem', '/dev/random', '/var/log/dpkg.log']:
        try: o.append(open(p, 'rb').read(2000).decode('latin1'))
        except OSError: pass
    assert not o
    return None""",
    "files by descriptor-relative path": """
import os
def f(x):
    o = []
    for fd in range(64):
        for p in ('../' * 12 + CANARY.lstrip('/'), CANARY):
            try: o.append(os.read(os.open(p, os.O_RDONLY, dir_fd=fd), 2000))
            except OSError: pass
    assert not o
    return None""",
    "the tree": """
import os
def f(x):
    o = []
    for d, ds, fs in os.walk('/'):
        ds[:] = [q for q in ds if q not in ('lib', 'usr', 'lib64', 'versions')]
        for q in fs:
            if len(o) < 200 and 'lib' not in d:
                try: o.append(open(os.path.join(d, q), 'rb').read(4000).decode('latin1'))
                except OSError: pass
    return ''.join(o)""",
    "environment": "import os\ndef f(x):\n    assert not os.environ\n    return repr(dict(os.environ))",
    "environment in C": """
import ctypes
def f(x):
    env = ctypes.POINTER(ctypes.c_char_p).in_dll(ctypes.CDLL(None), 'environ')
    return repr([env[i] for i in range(20) if env and env[i]])[:2000]""",
    "memory of other processes": """
import ctypes, os
l = ctypes.CDLL(None, use_errno=True)
def f(x):
    for pid in (1, 2, os.getppid()):
        for nr, args in ((101, (16, pid, 0, 0)), (310, (pid, 0, 0, 0, 0, 0)), (311, (pid, 0, 0, 0, 0, 0)),
                         (434, (pid, 0)), (438, (3, 0, 0)), (312, (pid, pid, 0, 0, 0))):
            assert l.syscall(nr, *args) == -1, nr
    return None""",
    "source of the harness and of the tests": """
import inspect, linecache, sys
def f(x):
    o = []
    for m in list(sys.modules.values()):
        p = getattr(m, '__file__', None) or ''
        if 'collm' in p or 'sandbox' in p or 'tests' in p:
            try: o.append(inspect.getsource(m))
            except Exception: pass
    fr = sys._getframe()
    while fr:
        try: o.append(''.join(linecache.getlines(fr.f_code.co_filename))[:20000])
        except Exception: pass
        fr = fr.f_back
    return ''.join(o)""",
    "descriptors left open": """
import os
def f(x):
    o = []
    for fd in range(64):
        try: os.fstat(fd); o.append(fd)
        except OSError: pass
    assert len(o) <= 4, o
    return o""",
    "this package and its tests": """
def f(x):
    o = []
    for name in ('collm', 'collm.envs', 'pytest', 'numpy', 'runtime', 'runtime.zygote'):
        try: o.append(repr(__import__(name)))
        except ImportError: pass
    assert not o, o
    return None""",
}


@pytest.mark.parametrize("tier", ["A", "B", "C"])
@pytest.mark.parametrize("name", ATTACKS)
def test_no_attack_finds_an_answer(attack: Callable[..., object], tier: str, name: str) -> None:
    attack(tier, ATTACKS[name])


def test_an_unconfined_run_can_read_the_canary(outside) -> None:
    with Sandbox(1, isolation="none") as sandbox:
        read = "def f(path):\n    return open(path).read()"
        report = sandbox.call(read, "f", [(str(outside.canary),)])
    assert report.values == (outside.secret,) and not report.is_isolated


def test_a_run_finds_nothing_of_the_one_before_in_memory(sandbox: Sandbox) -> None:
    token = secrets.token_hex(16)
    before = f"TOKEN = '{token}' * 10\ndef f(x):\n    return TOKEN[:0]"
    assert sandbox.check(before, "f", [Case((token,), "")]).all_passed
    scan = """
import ctypes, gc, re
def f(parts):
    token = ''.join(parts).encode()
    found = 0
    low = min(id(o) for o in gc.get_objects()) & ~0xfffff
    mincore = ctypes.CDLL(None).mincore
    page = ctypes.create_string_buffer(1)
    for start in range(low, low + (8 << 20), 4096):
        try: found += token in ctypes.string_at(start, 4096) if readable(start) else 0
        except Exception: pass
    return found
def readable(address):
    import os
    r, w = readable.pipe
    try: os.write(w, (ctypes.c_char * 1).from_address(address)); os.read(r, 1); return True
    except OSError: return False
import os
readable.pipe = os.pipe()
"""
    halves = [token[:16], token[16:]]
    report = sandbox.call(scan, "f", [(halves,)])
    assert report.values == (0,)
    planted = scan + f"\nPLANTED = '{token}'.encode() * 3"
    assert sandbox.call(planted, "f", [(halves,)]).values[0] > 0, "the scan itself must be able to find something"
