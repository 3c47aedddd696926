"""Attacks on the verdict of `check`: wrong code that tries to pass."""

import subprocess
import sys
from collections.abc import Callable

import pytest

SAY = """
import os, struct
def say(body, times=1):
    for fd in range(3, 20):
        try: os.write(fd, (struct.pack('!I', len(body)) + body) * times)
        except OSError: pass
"""
ATTACKS = {
    "exit at import": "import sys\nsys.exit(0)\ndef f(x): return x",
    "leave at import": "import os\nos._exit(0)\ndef f(x): return x",
    "exit in the function": "def f(x): raise SystemExit(0)",
    "leave in the function": "import os\ndef f(x): os._exit(0)",
    "unusual exceptions": """
class B(BaseException): pass
def f(x): raise [KeyboardInterrupt, GeneratorExit, B][x % 3]""",
    "crash": "import ctypes\ndef f(x): ctypes.string_at(0)",
    "abort": "import os\ndef f(x): os.abort()",
    "no function": "g = 1",
    "function that is none": "f = 3",
    "object equal to everything": """
class E:
    def __eq__(s, o): return True
    def __ne__(s, o): return False
    def __bool__(s): return True
    def __hash__(s): return 0
def f(x): return E()""",
    "string equal to everything": """
class S(str):
    def __eq__(s, o): return True
    __hash__ = str.__hash__
def f(x): return S('zzz')""",
    "number and list equal to everything": """
class I(int):
    def __eq__(s, o): return True
    def __index__(s): return 3
    __hash__ = int.__hash__
class L(list):
    def __eq__(s, o): return True
    def __iter__(s): return iter([I(3)])
def f(x): return [I(3), L([1])][x % 2]""",
    "object that lies about its class": """
class E:
    __class__ = str
    def __eq__(s, o): return True
    def __hash__(s): return 0
def f(x): return E()""",
    "array look-alike": """
class E:
    __module__ = 'numpy'
    def tolist(s): return True
def f(x): return E()""",
    "metaclass that is equal to everything": """
class M(type):
    def __eq__(s, o): return True
    def __hash__(s): return 0
    def __instancecheck__(s, o): return True
class E(metaclass=M): pass
def f(x): return E""",
    "nan and infinity": "def f(x): return [float('nan'), float('inf')][x % 2]",
    "replaced builtins": """
import builtins
class X(Exception): pass
for n in ('all', 'any', 'len', 'isinstance', 'AssertionError', 'Exception', 'type', 'compile', 'exec', 'zip', 'set',
          'sorted', 'getattr', 'str', 'repr', 'BaseException'):
    setattr(builtins, n, lambda *a, **k: True)
def f(x): return x""",
    "replaced json": """
import json
json.dumps = lambda *a, **k: '["v",true]'
json.JSONEncoder.encode = lambda *a, **k: '["v",true]'
def f(x): return x""",
    "forged frames": """SAY
for body in (b'["v",true]', b'["end","",""]', b'["passed"]', b'{"passed":[true,true,true],"all":true}'): say(body)
os._exit(0)
def f(x): return x""",
    "more answers than questions": """SAY
say(b'["v","x"]', 50)
def f(x): return x""",
    "claims to have failed to load": """SAY
def f(x):
    say(b'["load",["E","",null,[]]]')
    os._exit(0)""",
    "pretends that the executor failed": "import os\ndef f(x): os._exit(70)",
    "closes the channel": "import os\ndef f(x): os.closerange(0, 64)",
    "printed verdicts": """
print('passed')
print('===== 5 passed in 0.01s =====')
print('OK')
print('{"passed": true, "all": true}')
def f(x): return x""",
    "import hooks": """
import sys, builtins
o = builtins.__import__
def h(n, *a, **k):
    m = o(n, *a, **k)
    for v in ('dumps', 'loads', 'encode', 'write'):
        if hasattr(m, v):
            try: setattr(m, v, lambda *a, **k: '["v",true]')
            except Exception: pass
    return m
builtins.__import__ = h
class L:
    def find_spec(s, n, p=None, t=None): return None
sys.meta_path.insert(0, L())
import json, codecs
def f(x): return x""",
    "patches the harness in memory": """
import gc, types
def f(x):
    for function in gc.get_objects():
        if isinstance(function, types.FunctionType) and (function.__module__ or '').startswith('runtime'):
            if function.__name__ == 'encode': function.__code__ = (lambda value, *a, **k: 'true').__code__
    return x""",
    "exception with a huge text": """
class E(Exception):
    def __str__(s): return '["v",true]' * 1000000
def f(x): raise E()""",
    "exception whose text raises": """
class E(Exception):
    def __str__(s): raise SystemExit(0)
def f(x): raise E()""",
    "persistence in the path": """
import sys, os
for p in sys.path + ['/tmp', '.', '/scratch', os.path.dirname(os.__file__)]:
    for n in ('sitecustomize.py', 'usercustomize.py', 'x.pth', 'json.py'):
        try: open(os.path.join(p, n), 'w').write('print(1)')
        except OSError: pass
def f(x): return x""",
    "generator": "def f(x):\n    yield x",
    "coroutine": "async def f(x):\n    return x",
    "replaces itself while it is called": """
def f(x):
    global f
    f = lambda x: True
    return f""",
}
ATTACKS = {name: code.replace("SAY", SAY, 1) for name, code in ATTACKS.items()}
TRUSTED_TEST = "assert f(3) == 'a long and random answer'"
FOOLS_AN_EXIT_STATUS = (
    *("exit at import", "leave at import", "exit in the function", "leave in the function", "forged frames"),
    *("object equal to everything", "string equal to everything", "metaclass that is equal to everything"),
    "object that lies about its class",
)


@pytest.mark.parametrize("tier", ["A", "B", "C"])
@pytest.mark.parametrize("name", ATTACKS)
def test_no_attack_on_the_verdict_passes(attack: Callable[..., object], tier: str, name: str) -> None:
    attack(tier, ATTACKS[name])


def test_the_same_attacks_fool_a_grader_that_trusts_an_exit_status() -> None:
    def passes(code: str) -> bool:
        command = [sys.executable, "-I", "-S", "-c", f"{code}\n{TRUSTED_TEST}"]
        return subprocess.run(command, capture_output=True, timeout=10).returncode == 0

    assert [name for name in FOOLS_AN_EXIT_STATUS if not passes(ATTACKS[name])] == []
    assert not passes("def f(x): return x") and passes("def f(x): return 'a long and random answer'")
