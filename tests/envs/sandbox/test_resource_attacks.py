"""Attacks on resources: time, memory, output, descriptors, and the host's time to decode results."""

import time
from collections.abc import Callable

import pytest

from collm.envs.sandbox import Case, Limits, Report, Sandbox

BUSY = Limits(cpu_s=0.3, wall_s=30)
IDLE = Limits(cpu_s=0.3, wall_s=0.8)
FRAME = "import os, struct\nb = BODY\nos.write(4, struct.pack('!I', len(b)) + b)\nos._exit(0)"
QUICK = {
    "one giant allocation": "x = bytearray(1 << 40)\ndef f(x): return x",
    "steady growth": "L = []\nwhile True: L.append(bytearray(1 << 20))",
    "growth by mapping": """
import mmap
L = []
while True: L.append(mmap.mmap(-1, 1 << 20))""",
    "doubling string": "s = 'x'\nwhile True: s += s",
    "Python recursion": "import sys\nsys.setrecursionlimit(10**9)\ndef g(): g()\ndef f(x): g()",
    "recursion in C": """
def f(x):
    import sys
    sys.setrecursionlimit(10**9)
    o = []
    for _ in range(200000): o = [o]
    return repr(o)""",
    "flood of stdout": """
import os, sys
try:
    while True: os.write(1, b'x' * 65536); os.write(2, b'x'); print('y' * 65536)
except MemoryError: raise""",
    "flood of results": "import os\nwhile True: os.write(4, b'\\x00\\x00\\xff\\xff' + b'x' * 65535)",
    "flood of little results": "import os\nwhile True: os.write(4, b'\\x00\\x00\\x00\\x04null')",
    "huge frame announced": "import os, time\nos.write(4, b'\\xff\\xff\\xff\\xff')\nos._exit(0)",
    "half a frame": "import os\nos.write(4, b'\\x00\\x00\\x00\\x0a[\"v\"')\nos._exit(0)",
    "descriptors": "import os\nL = []\nwhile True: L.append(os.pipe())",
    "deep result": "def f(x):\n    r = []\n    for i in range(100000): r = [r]\n    return r",
    "deep result, forged": FRAME.replace("BODY", """b'["v",' + b'["l",' * 100000 + b']' * 100001"""),
    "deep scalars, forged": FRAME.replace("BODY", """b'["v",' + b'["c",' * 900 + b'1.0' + b',1.0]' * 900 + b']'"""),
    "circular result": "def f(x):\n    r = []\n    r.append(r)\n    return r",
    "huge integer": "def f(x): return 10**200000",
    "huge decimal, forged": FRAME.replace("BODY", """b'["v",' + b'7' * 900000 + b']'"""),
    "huge float, forged": FRAME.replace("BODY", """b'["v",0.' + b'7' * 900000 + b'e5]'"""),
    "objects, forged": FRAME.replace("BODY", """b'["v",{"a":{"__class__":"x"}}]'"""),
    "no text at all": """
import os, struct
for b in (b'["v","\\xff\\xfe\\x00"]', b'["u","zz"]', b'', b'[]', b'[1]', b'NaN', b'["v",NaN]', b'["v","\\ud800"]'):
    os.write(4, struct.pack('!I', len(b)) + b)
os._exit(0)""",
    "keys that collide": """
def f(x):
    return {k * ((1 << 61) - 1): 0 for k in range(1, 300)}""",
    "large result": "def f(x): return list(range(400000))",
    "wide result": "def f(x): return 'x' * 5000000",
    "deep parentheses": "x = eval('(' * 5000 + '1' + ')' * 5000)\ndef f(x): return x",
    "many minus signs": "x = eval('-' * 100000 + '1')\ndef f(x): return x",
    "bad source": "\\x00\\xff def f(x)",
    "null in the source": "x = 1\0\ndef f(x): return x",
    "timers": """
import signal, time
signal.setitimer(signal.ITIMER_REAL, 0.01)
time.sleep(0.2)""",
    "never collected": """
import gc
gc.disable()
while True:
    a = []; a.append(a); a.append(bytearray(1 << 16))""",
    "finalizers at the end": """
import atexit
class D:
    def __del__(s):
        while True: pass
keep = D()
@atexit.register
def g():
    while True: pass
def f(x): return x""",
}
TO_THE_CPU_LIMIT = {
    "endless loop": "while True: pass",
    "endless loop in the function": "def f(x):\n    while True: pass",
    "uninterruptible power": "x = 9**9**9\ndef f(x): return x",
    "catastrophic regular expression": "import re\nre.match('(a+)+$', 'a' * 60 + 'b')\ndef f(x): return x",
    "constant folding": "x = eval('((1 << 60000) ** 60000)')\ndef f(x): return x",
    "exceptions swallowed": """
while True:
    try:
        while True: pass
    except BaseException: pass""",
    "own clock disabled": """
import signal
for s in (signal.SIGXCPU, signal.SIGALRM, signal.SIGVTALRM, signal.SIGPROF): signal.signal(s, signal.SIG_IGN)
while True: pass""",
}
TO_THE_WALL_LIMIT = {
    "sleep": "import time\ntime.sleep(10**6)\ndef f(x): return x",
    "wait for input that never comes": "import os\nos.read(4, 100)\ndef f(x): return x",
    "channel kept open": "import os, time\nos.write(4, b'\\xff\\xff\\xff\\xff'); time.sleep(1000)",
}


@pytest.mark.parametrize("tier", ["A", pytest.param("B", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", QUICK)
def test_no_attack_takes_more_than_its_share(attack: Callable[..., Report], tier: str, name: str) -> None:
    started = time.perf_counter()
    attack(tier, QUICK[name])
    assert time.perf_counter() - started < 10


@pytest.mark.parametrize("tier", ["auto", *(pytest.param(tier, marks=pytest.mark.slow) for tier in "BC")])
@pytest.mark.parametrize("name", TO_THE_CPU_LIMIT | TO_THE_WALL_LIMIT)
def test_cpu_time_ends_a_busy_run_and_the_clock_an_idle(attack: Callable[..., Report], tier: str, name: str) -> None:
    is_busy = name in TO_THE_CPU_LIMIT
    report = attack(tier, (TO_THE_CPU_LIMIT | TO_THE_WALL_LIMIT)[name], BUSY if is_busy else IDLE)
    if tier != "C" or report.status != "load_error":
        assert report.status == ("cpu_limit" if is_busy else "wall_limit")
        assert 0.3 <= report.cpu_s < 0.6 if is_busy else report.cpu_s < 0.2


def test_memory_and_output_past_their_limits_are_refused_and_less_is_not(sandbox: Sandbox) -> None:
    code = "def f(mb):\n    return len(bytearray(mb << 20)) >> 20"
    report = sandbox.call(code, "f", [(50,), (400,)], limits=Limits(memory_mb=100))
    assert report.values == (50, None)
    assert report.outcomes[1].failure.kind == "MemoryError"
    limits = Limits(output_kb=64, stdout_kb=1)
    printed = sandbox.call("def f(n):\n    print('é' * n)", "f", [(5000,)], limits=limits)
    assert printed.status == "ok"
    assert printed.stdout == "é" * 1024
    returned = sandbox.call("def f(n):\n    return 'x' * n", "f", [(5000,), (500000,)], limits=limits)
    assert returned.status == "output_limit"


def test_a_run_over_its_processor_time_fails_and_calls_after_a_death_may_have_another_life(sandbox: Sandbox) -> None:
    code = """
import time
def f(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end: pass
    return seconds"""
    cases = [Case((0.05,), 0.05), Case((0.3,), 0.3)]
    verdict = sandbox.check(code, "f", cases, limits=Limits(cpu_s=0.2, wall_s=20))
    assert verdict.report.status == "cpu_limit"
    assert verdict.passed == (True, False) and not verdict.all_passed
    code = "def f(x):\n    while x == 1: pass\n    return x"
    cases = [Case((number,), number) for number in range(4)]
    once = sandbox.check(code, "f", cases, limits=Limits(cpu_s=0.2, wall_s=5))
    twice = sandbox.check(code, "f", cases, limits=Limits(cpu_s=0.2, wall_s=5, max_deaths=2))
    assert once.passed == (True, False, False, False)
    assert twice.passed == (True, False, True, True) and not twice.all_passed
    assert twice.report.status == "cpu_limit"
