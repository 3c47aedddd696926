"""Attacks on the verdict of tests in two jails: known forgeries, variants of them, and generated combinations."""

import json
import random
import secrets
import time

import pytest

from collm.envs.sandbox import Case, Limits, Sandbox, results

SECRET = "a long and random answer 77e6"
QUICK = Limits(cpu_s=0.3, wall_s=5)
CLASS = "class Account:\n"
YES = """
class Yes:
    def __call__(s, *a, **k): return Yes()
    def __getattr__(s, n): return lambda *a, **k: True
    def __eq__(s, o): return True
    def __ne__(s, o): return False
    def __lt__(s, o): return True
    def __sub__(s, o): return 0
    def __rsub__(s, o): return 0
    def __abs__(s): return 0
    def __contains__(s, o): return True
    def __getitem__(s, k): return True
    def __len__(s): return 1
    def __iter__(s): return iter([Yes()])
    def __hash__(s): return 0
"""


def outcome(sandbox: Sandbox, code: str, tests: str, *, is_class: bool = False) -> results.TestReport:
    if is_class:
        return sandbox.run_tests(code, tests, "Account", classes=("Account",), limits=QUICK)
    return sandbox.run_tests(code, tests, "f", limits=QUICK)


def method(body: str, *, of: str = "Account()") -> str:
    lines = "".join(f"        {line}\n" for line in body.splitlines())
    return f"import unittest\nclass T(unittest.TestCase):\n    def test(self):\n        it = {of}\n{lines}"


# What tests draw.

TIMED = "import random, time\ndef f():\n    t = int(time.time()) // 100 * 100"
DRAWN = {
    "random": "import random\ndef f(): return random.random()\n",
    "range": "import random\ndef f(): return [random.randrange(1 << 60) for _ in range(3)]\n",
    "choice": "import random\ndef f(): return ''.join(random.choice('abcdefghij') for _ in range(20))\n",
    "hash": "def f(): return hash('a text')\n",
    "uuid": "import uuid\ndef f(): return str(uuid.uuid4()) + str(uuid.uuid1())\n",
    "system": "import os, random\ndef f(): return [os.urandom(8), random.SystemRandom().random()]\n",
    "the time in seconds": TIMED + "\n    random.seed(t)\n    return random.random()\n",
    "the time in milliseconds": TIMED.replace("* 100", "* 10**5") + "\n    return random.Random(t).random()\n",
}


@pytest.mark.parametrize("name", DRAWN)
def test_tests_and_solution_draw_different_streams(sandbox: Sandbox, name: str) -> None:
    draws = DRAWN[name]
    for seed in (None, 0, 1):
        tests = f"theirs = f\n{draws}assert theirs() != f(), 'the solution draws what the tests draw'"
        assert sandbox.run_tests(draws, tests, "f", seed=seed).all_passed


def drawn_by(sandbox: Sandbox, seed: int | None, what: str) -> str:
    """The draw of the tests or of the solution, from the message of a failed assertion."""
    tests = f"theirs = f\n{DRAWN['random']}assert None, repr({what}())"
    return sandbox.run_tests(DRAWN["random"], tests, "f", seed=seed).tests[0].message


@pytest.mark.parametrize("side", ["f", "theirs"])
def test_both_streams_follow_from_the_seed_and_no_two_seeds_share_one(sandbox: Sandbox, side: str) -> None:
    assert drawn_by(sandbox, 5, side) == drawn_by(sandbox, 5, side)
    assert len({drawn_by(sandbox, seed, side) for seed in (0, 1, 2, 1 << 70, None, None)}) == 6
    drawn = random.Random(42).random()
    tests = "import random\nrandom.seed(42)\nassert [random.random(), random.Random(42).random()] == f() * 2"
    assert sandbox.run_tests(f"def f(): return [{drawn!r}]", tests, "f").all_passed


def test_numpys_streams_differ_too() -> None:
    draws = "import numpy\ndef f(): return float(numpy.random.rand())\n"
    timed = "import numpy, time\ndef f():\n    numpy.random.seed(int(time.time()) // 100 * 100)\n"
    timed += "    return float(numpy.random.rand())\n"
    with Sandbox(1, packages=("numpy",)) as numeric:
        for code in (draws, timed):
            assert numeric.run_tests(code, f"theirs = f\n{code}assert theirs() != f()", "f").all_passed


# Equality (the rule itself is tested in test_values.py).


@pytest.mark.parametrize(
    ("code", "case"),
    [
        ("def f(x): return x + 1", Case((10**12,), 10**12, tolerance=1e-9)),
        ("def f(x): return float(x + 1)", Case((10**12,), 10**12, tolerance=1e-9)),
        ("def f(x): return [x + 100]", Case((143105353902225,), [143105353902225], tolerance=1e-9)),
        ("def f(x): return 0.0", Case((1,), float("inf"), tolerance=1e-9)),
        ("def f(x): return float('-inf')", Case((1,), float("inf"), tolerance=1e-9)),
        ("def f(x): return 0.0", Case((1,), float("nan"), tolerance=1e-9)),
        ("def f(x): return 'x'", Case((1,), accepts=lambda value: value > 3)),
        ("def f(x): return range(10**18)", Case((1,), accepts=lambda value: bool(sorted(value)))),
        ("def f(x): return '\\ud800'", Case((1,), accepts=lambda value: bool(value.encode()))),
    ],
)
def test_no_wrong_value_passes_a_case_nor_stops_the_judging(sandbox: Sandbox, code: str, case: Case) -> None:
    verdict = sandbox.check(code, "f", [case, Case((1,), accepts=lambda _: True)], limits=QUICK)
    assert verdict.passed[0] is False
    json.dumps([repr(verdict.report.values), str(verdict.report.failure)]).encode()
    for value in (float("inf"), float("-inf"), float("nan"), 10**12, 1e12):  # the right value passes
        right = Case((), value, tolerance=1e-9)
        assert sandbox.check(f"def f(): return float('{value}')", "f", [right]).all_passed


# Attributes and results that are objects.

HANDED_OVER = {
    "a method of an attribute": "self.assertTrue(it.owner.startswith('{s}'))",
    "an item of an attribute": "self.assertTrue(it.owner['{s}'])",
    "an attribute of an attribute": "self.assertTrue(it.owner.name == '{s}' or it.owner.is_it('{s}'))",
    "containment in an attribute": "self.assertIn('{s}', it.owner)",
    "equality of an attribute": "self.assertEqual(it.owner, '{s}')",
    "equality, the other way": "self.assertTrue('{s}' == it.owner)",
    "length of an attribute": "self.assertEqual(len(it.owner), 1)",
    "iteration of an attribute": "self.assertEqual([str(part) for part in it.owner], ['{s}'])",
    "text of an attribute": "self.assertEqual(str(it.owner), '{s}')",
    "order of an attribute": "self.assertGreaterEqual(it.owner, '{s}')",
    "context of an attribute": "with it.owner as owner: self.assertEqual(owner, '{s}')",
    "arithmetic on an attribute": "self.assertLess(abs(it.owner - 77.5), 1e-6)",
    "an attribute of a method": "self.assertTrue(it.method.check('{s}'))",
    "what a method returns": "self.assertTrue(it.method().startswith('{s}'))",
    "what an attribute returns": "self.assertTrue(it.owner().startswith('{s}'))",
    "an attribute of the class": "self.assertTrue(Account.owner.startswith('{s}'))",
    "equality with the object": "self.assertEqual(it, '{s}')",
    "containment in the object": "self.assertIn('{s}', it)",
    "deletion": "self.assertEqual(it.owner.pop('{s}'), '{s}')",
}
HOSTILE_CLASS = (
    YES
    + """
learnt = []
class Account(Yes):
    owner = Yes()
    def method(self, *a): return Yes()
    def learn(self): return repr(learnt)
    def __getattribute__(self, n): return object.__getattribute__(self, n)
    def __setattr__(self, n, v): learnt.append(v)
"""
)


@pytest.mark.parametrize("name", HANDED_OVER)
def test_no_object_of_the_solution_is_asked_whether_it_is_right(sandbox: Sandbox, name: str) -> None:
    body = HANDED_OVER[name].format(s=SECRET)
    report = outcome(sandbox, HOSTILE_CLASS, method(body), is_class=True)
    assert report.fraction == 0 and len(report.tests) == 1, report
    recording = HOSTILE_CLASS.replace("return lambda *a, **k: True", "return lambda *a, **k: learnt.append(a)")
    told = method(f"try:\n    {body}\nexcept Exception: pass\nself.assertNotIn('{SECRET}', it.learn())")
    assert outcome(sandbox, recording, told, is_class=True).fraction in (0, 1)
    leaked = outcome(sandbox, recording, told.replace("assertNotIn", "assertIn"), is_class=True)
    assert not leaked.all_passed, "the solution was told the answer"


SAYING = """
import os, struct
def say(b):
    b = b if isinstance(b, bytes) else b.encode()
    data = struct.pack('!I', len(b)) + b
    while data: data = data[os.write(4, data):]
say('["ready"]')
"""
MADE = ["Yes()", "lambda *a: Yes()", "[Yes()]", "iter([Yes()])", "Yes", "(y for y in [Yes()])"]
CODES = {f"returns {made}": f"{YES}\ndef f(x): return {made}\nf.attribute = Yes()" for made in MADE} | {
    "returns an object with another attribute": YES.replace("True\n", "Yes()\n", 1) + "def f(x): return Yes()",
    "the function is such an object": YES + "f = Yes()",
    "the function is a class": YES + "class f(Yes):\n    def __init__(s, *a): pass",
    "exit": "import sys\nsys.exit(0)",
    "leave": "import os\nos._exit(0)",
    "leave in the function": "import os\ndef f(x): os._exit(0)",
    "a forged verdict": SAYING
    + """
for b in ('["plan",[["a",1]]]', '["result",0,true,""]', '["done",null]', '["end","",""]'): say(b)
while True: os.read(4, 1000)""",
    "a forged handle": SAYING + 'while os.read(4, 65536): say(\'["v",["h",0]]\')',
    "a handle inside of data": SAYING + 'while os.read(4, 65536): say(\'["v",["l",["h",0],["g","f"]]]\')',
    "exceptions that stop the tests": "def f(x): raise [SystemExit, KeyboardInterrupt, GeneratorExit][x % 3](0)",
    "an exception named like success": "class SkipTest(Exception): pass\ndef f(x): raise SkipTest('passed')",
    "frames": """
import re, sys
def f(x):
    fr = sys._getframe(); o = ''
    while fr: o += repr(fr.f_locals) + repr(fr.f_globals); fr = fr.f_back
    return (re.findall('[0-9a-f]{32}', o) or [o])[0]""",
    "memory": """
import gc, re
def f(x):
    o = ''.join(repr(o)[:5000] for o in gc.get_objects() if type(o) in (dict, list, tuple))
    return (re.findall('[0-9a-f]{32}', o) or [None])[0]""",
    "endless": "def f(x):\n    while True: pass",
    "endless answers": "import os\nwhile True: os.write(4, b'\\x00\\x00\\x00\\x04null')",
}


@pytest.mark.parametrize("name", CODES)
def test_no_code_passes_a_single_test(sandbox: Sandbox, name: str) -> None:
    workers = sandbox.process_ids
    secret = secrets.token_hex(16)
    tests = f"""
def check(candidate):
    assert candidate(1) == '{secret}'
    assert candidate(1).startswith('{secret}')
    assert '{secret}' in candidate(1)
    assert candidate(1)['{secret}']
    assert candidate(1)['{secret}'] == 5
    assert candidate.attribute.startswith('{secret}')
    assert abs(candidate(1) - 77.5) < 1e-6
    assert list(candidate(1)) == ['{secret}']
    assert sorted(candidate(1)) == ['{secret}']
    assert [candidate(1)] == ['{secret}'] and len(candidate(1)) == 32
    assert len(candidate(1)) == 1
    assert candidate(1) >= chr(127) + '{secret}'
    assert candidate(1) in ('{secret}', 'other')
    assert isinstance(candidate(1), complex)
    assert next(candidate(1)) == '{secret}'
    assert not candidate(1) != '{secret}'
"""
    report = sandbox.run_tests(code := CODES[name], tests, "f", limits=Limits(cpu_s=0.3, wall_s=3))
    assert report.fraction == 0 and not report.all_passed, (code, report)
    assert len(report.tests) == 16 or report.test_failure is not None
    assert outcome(sandbox, "def f(x): return x", "assert f(1) == 1").all_passed
    assert not workers or set(workers) <= set(sandbox.process_ids), "a worker had to be replaced"


def test_only_where_tests_put_an_instance_is_an_attribute_one(sandbox: Sandbox) -> None:
    node = "class Account:\n    def __init__(self): self.next = None\n    def is_it(self, x): return True\n"
    chain = "it.next = Account()\nit.next.next = Account()\nself.assertEqual(it.next.next.next, None)"
    assert outcome(sandbox, node, method(chain), is_class=True).all_passed
    hostile = node + "    @property\n    def owner(self): return self\n    next = owner.setter(lambda s, v: None)\n"
    hostile = hostile.replace("self.next = None", "pass")
    for line in (f"it.owner.is_it('{SECRET}')", f"it.next.is_it('{SECRET}')", f"it.is_it.is_it('{SECRET}')"):
        assert outcome(sandbox, hostile, method(f"self.assertTrue({line})"), is_class=True).fraction == 0
    other = f"first = it\nit.next = Account()\nit.next = None\nself.assertTrue(it.next.is_it('{SECRET}'))"
    assert outcome(sandbox, hostile, method(other), is_class=True).fraction == 0
    # Truth, kind and equality of two instances are the solution's own to say, as documented.
    allowed = method("self.assertTrue(it)\nself.assertIsInstance(it, Account)\nself.assertEqual(it, Account())")
    assert outcome(sandbox, YES + "class Account(Yes): pass", allowed, is_class=True).all_passed


# Loops that the solution ends, and what was not reached.

ENDERS = {
    "StopIteration": "raise StopIteration",
    "a subclass": "raise type('E', (StopIteration,), {})",
    "StopAsyncIteration": "raise StopAsyncIteration('x')",
    "two bases": "raise type('E', (KeyError, StopIteration), {})",
    "IndexError": "raise IndexError",
    "GeneratorExit": "raise GeneratorExit",
}
LOOPS = {
    "zip and map": "for got, want in zip(map(candidate, [1, 2]), ['a', 'b']): assert got == want",
    "map": "for got in map(candidate, [1, 2]): assert got == 'a'",
    "filter": "for got in filter(candidate, [1, 2]): assert got == 'a'",
    "all and map": "assert all(map(lambda x: candidate(x) == 'a', [1, 2]))",
    "all of a generator": "assert all(candidate(x) == 'a' for x in [1, 2])",
    "iter": "for got in iter(lambda: candidate(1), 'a'): assert got == 'b'",
    "sorted": "assert sorted([2, 1], key=candidate) == [2, 1, 0][:2] and candidate(1)",
    "list": "assert list(map(candidate, [1])) == [] or candidate(1)",
    "next": "assert next(map(candidate, [1]), 'nothing') == 'a'",
    "generator of their own": "def each():\n        yield candidate(1)\n    for got in each(): assert got == 'a'",
}


@pytest.mark.parametrize("ender", ENDERS)
def test_no_exception_of_the_solution_ends_a_loop_of_the_tests(sandbox: Sandbox, ender: str) -> None:
    code = f"def f(*x): {ENDERS[ender]}"
    for name, loop in LOOPS.items():
        report = outcome(sandbox, code, f"def check(candidate):\n    {loop}\n")
        assert report.fraction == 0 and not report.all_passed, (name, report)


NOT_RUN = {
    "for": "for v in candidate(3): assert v == 1",
    "while": "while candidate(3): assert candidate(1) == 1",
    "nested": "for v in candidate(3):\n        for w in v: assert w == 1",
    "inner": "for v in [1, 2]:\n        for w in candidate(3): assert w == 1",
    "raise": "for v in candidate(3):\n        if v != 1: raise ValueError(v)",
    "pairs": "for v, w in zip(candidate(3), [1, 2, 3]): assert v == w",
    "branch": "if candidate(3): assert candidate(1) == 1",
    "handler": "try: candidate(3)\n    except ValueError: assert candidate(1) == 1",
}


@pytest.mark.parametrize("name", NOT_RUN)
def test_a_test_of_which_nothing_ran_does_not_pass(sandbox: Sandbox, name: str) -> None:
    tests = f"def check(candidate):\n    {NOT_RUN[name]}\n"
    report = outcome(sandbox, "def f(x): return []", tests)
    assert not report.all_passed and report.fraction == 0 and report.tests[0].message
    body = NOT_RUN[name].replace("candidate", "f").replace("\n    ", "\n")
    report = sandbox.run_tests("def f(x): return []", method(body, of="None"), "f")
    assert not report.all_passed and report.fraction == 0


def test_a_loop_that_should_have_run_is_told_and_branches_left_out_count_neither_way(sandbox: Sandbox) -> None:
    tests = "def check(candidate):\n    assert candidate(0) == []\n    for v in candidate(3):\n        assert v == 1"
    report = outcome(sandbox, "def f(x): return []", tests)
    told = [(test.passed, test.message) for test in report.tests]
    assert told == [(True, ""), (False, "the loop in line 3 never ran")]
    assert outcome(sandbox, "def f(x): return [1] * x", tests).all_passed
    tests = method("self.assertEqual(f(0), [])\nfor v in f(3): self.assertEqual(v, 1)", of="None")
    (test,) = outcome(sandbox, "def f(x): return []", tests).tests
    assert not test.passed and "line 6 never ran" in test.message
    assert outcome(sandbox, "def f(x): return [1] * x", tests).all_passed
    tests = """
def check(candidate):
    if isinstance(candidate(1), list):
        assert candidate(1) == [1]
    else:
        assert candidate(1) == 1
    try:
        candidate(-1)
        assert False, 'no exception'
    except ValueError:
        pass
"""
    code = "def f(x):\n    if x < 0: raise ValueError\n    return x"
    report = outcome(sandbox, code, tests)
    assert report.all_passed and [test.line for test in report.tests] == [6, 9]
    report = outcome(sandbox, "def f(x): return x", tests)
    assert [test.passed for test in report.tests] == [True, False]


def test_methods_of_tests_that_can_say_nothing_are_no_tests_and_methods_end_no_loop(sandbox: Sandbox) -> None:
    tests = """
import unittest
class T(unittest.TestCase):
    def test_empty(self): pass
    def test_smoke(self): f(1)
    def test_right(self): self.assertEqual(f(1), 1)
    def test_by_another(self): self.compare(f(1), 1)
    def compare(self, left, right): assert left == right
"""
    report = outcome(sandbox, "def f(x): return x", tests)
    assert report.all_passed and [test.name for test in report.tests] == ["T.test_by_another", "T.test_right"]
    assert outcome(sandbox, "def f(x): raise StopIteration", tests).fraction == 0
    empty = tests.replace("self.assertEqual(f(1), 1)", "pass").replace("self.compare(f(1), 1)", "pass")
    assert not outcome(sandbox, "def f(x): return x", empty).all_passed
    code = "class Account:\n    def get(self, x): raise StopIteration\n    __getitem__ = get"
    for loop in (
        "for got in map(it.get, [1]): self.assertEqual(got, 2)",
        "for got in map(it.__getitem__, [1]): self.assertEqual(got, 2)",
        "self.assertTrue(all(map(it.get, [1])))",
        "for got in iter(lambda: it[0], 3): self.assertEqual(got, 2)",
    ):
        assert outcome(sandbox, code, method(loop), is_class=True).fraction == 0


# Forged replies.

RAISED = [
    *[("KeyboardInterrupt", "KeyboardInterrupt"), ("SystemExit", "SystemExit"), ("SkipTest", "SkipTest")],
    *[("SkipTest", "Exception"), ("_SkipTest", "__import__"), ("E", "ExceptionGroup"), ("E", "BaseException")],
    *[("E", "print"), ("StopIteration", "StopIteration")],
]
REPLIES = [
    *[f'["x",["{name}","passed",null,["{base}"]]]' for name, base in RAISED],
    *['["x",["E","",null,[["l"]]]]', '["x",["E","",null,"StopIteration"]]', '["x",[]]', '["v",true,0,["l","x"]]'],
    *['["v",true,-1,["l"]]', '["v",true,99,["l"]]', '["v",true,["l"],["l"]]', '["v",true,0]', '["v",["h",0]]'],
    *['["v",["k",0]]', '["v",["y",0]]', '["v",["g","f"]]', '["v",["l",["k",0]]]'],
    *['["v",["m",["t","x"],["t",["t",0,1]],["d"]]]', '["v",["m",1,2,3]]', '["v",["m"]]', '["v",["e","eval"]]'],
    *['["c",0,["l"]]', '["c",0,["k",1]]', '["over",null]', '["back",0,["l"],["d"]]', '["back",0,["d"],["l"]]'],
    *['["back",-1,["l"],["d"]]', '["back",99,["l"],["d"]]', '["return",true]', '["do","call",["l"],["d"]]'],
    *['["gone","x"]', '["end","",""]', '["v",["r",0,["i","de0b6b3a7640000"],1]]', '["v",["u","eda080"]]', '["v"]'],
    *["[]", "{}", "true", '["v",' + "[" * 70 + "]" * 70 + "]", '["v",["u","00"]]'],
    *['["v",["l",' + ",".join(['["l"]'] * 120_000) + "]]", '["x",["' + "E" * 200_000 + '","",null,[]]]'],
]


@pytest.mark.parametrize("n", [pytest.param(n, marks=pytest.mark.slow) if n % 3 else n for n in range(len(REPLIES))])
def test_no_reply_passes_a_test(sandbox: Sandbox, n: int) -> None:
    code = SAYING + f"reply = {REPLIES[n]!r}\nwhile b'stop' not in os.read(4, 65536): say(reply)"
    tests = f"""
def check(candidate):
    expected = ['{SECRET}']
    assert candidate(expected[:]) == '{SECRET}'
    assert sorted(candidate([2, 1])) == [1, 2]
    assert candidate(lambda x: x == '{SECRET}') == expected
    for got, want in zip(map(candidate, [1, 2]), ['{SECRET}', 'b']):
        assert got == want
    assert expected != ['{SECRET}']
"""
    report = sandbox.run_tests(code, tests, "f", limits=Limits(cpu_s=0.2, wall_s=0.3))
    assert report.fraction == 0 and not report.all_passed, report
    tests = method(f"self.assertTrue(it.owner.startswith('{SECRET}'))\nself.assertEqual(it.get(1), '{SECRET}')")
    report = sandbox.run_tests(code, tests, "Account", classes=("Account",), limits=Limits(cpu_s=0.2, wall_s=0.3))
    assert report.fraction == 0 and not report.all_passed, report


def test_replies_in_advance_or_in_part_pass_nothing(sandbox: Sandbox) -> None:
    for said in ('["v",true]', '["v","' + SECRET[:5], "\x00\x00\x01\x00half"):
        forged = f"for _ in range(9): say({said!r})\nos.write(4, b'\\0\\0\\1\\0half')\n"
        code = f"{SAYING}{forged}import time\ntime.sleep(99)"
        tests = f"assert f(1) == '{SECRET}'\nassert f(2) == '{SECRET}'"
        report = sandbox.run_tests(code, tests, "f", limits=Limits(cpu_s=0.2, wall_s=0.4))
        assert report.fraction == 0 and not report.all_passed


# Classes with special methods that lie, threads, floods.

LYING = [
    "def __getattribute__(self, name): return lambda *a: True",
    "def __len__(self): return -1",
    "def __contains__(self, x): return True",
    "def __iter__(self): return self\n    def __next__(self): raise StopIteration",
    "def __eq__(self, o): return True\n    __hash__ = None",
    "def __str__(self): return Lie()\n    __repr__ = __str__",
    "def __new__(cls, *a): return Lie()",
    "def __init__(self): self.__class__ = Lie",
    "__class__ = property(lambda self: str)",
]


@pytest.mark.parametrize("body", LYING)
def test_no_special_method_passes_a_test(sandbox: Sandbox, body: str) -> None:
    lie = "class Lie(str):\n    def __eq__(self, o): return True\n    __hash__ = str.__hash__\n"
    for check in (
        f"self.assertIn('{SECRET}', it)",
        "self.assertEqual(len(it), 32)",
        f"self.assertEqual(str(it), '{SECRET}')",
        f"self.assertEqual(it, '{SECRET}')",
        f"self.assertEqual(it.name, '{SECRET}')",
        f"self.assertEqual(list(it), ['{SECRET}'])",
        f"for part in it: self.assertEqual(part, '{SECRET}')",
        f"self.assertTrue(it.get().endswith('{SECRET}'))",
    ):
        report = outcome(sandbox, lie + CLASS + f"    {body}", method(check), is_class=True)
        assert report.fraction == 0, (check, report)


def test_threads_that_write_replies_are_contained() -> None:
    code = SAYING + "import threading\ndef spin():\n    while True: say('[\"v\",true]')\n"
    code += "threading.Thread(target=spin, daemon=True).start()\ndef f(x): return x"
    with Sandbox(1, allow_threads=True) as threaded:
        limits = Limits(cpu_s=0.2, wall_s=1)
        assert not threaded.run_tests(code, f"assert f(1) == '{SECRET}'", "f", limits=limits).all_passed
        assert not threaded.check(code, "f", [Case((1,), SECRET)], limits=limits).all_passed
        assert threaded.run_tests("def f(x): return x", "assert f(1) == 1", "f").all_passed


def test_no_flood_costs_the_trusted_side_more_than_a_few_runs(sandbox: Sandbox) -> None:
    for flood in [
        'for _ in range(60_000): say(\'["end","",""]\')',
        "say('[\"v\",[' + '[\"l\"],' * 170_000 + '[\"l\"]]]')",
        'for _ in range(9): say(\'["v",["l",\' + \'["l"],\' * 19_000 + \'["l"]]]\')',
    ]:
        code = SAYING.replace("say('[\"ready\"]')", "") + f"def f(x):\n    {flood}\n    os._exit(0)"
        started = time.process_time()
        verdict = sandbox.check(code, "f", [Case((1,), SECRET)] * 9, limits=QUICK)
        assert not any(verdict.passed)
        assert time.process_time() - started < 0.15


def test_a_solution_that_sleeps_shares_one_clock_over_all_its_lives(sandbox: Sandbox) -> None:
    limits = Limits(cpu_s=0.1, wall_s=0.3, max_deaths=5)
    code = "import time\ndef f(x):\n    {}\n    time.sleep(99)"
    for before in ("pass", "time.sleep(0.2)\n    while True: pass", "[i for i in range(10**6)]"):
        started = time.monotonic()
        asserted = "".join(f"assert f({number}) == {number}\n" for number in range(9))
        assert sandbox.run_tests(code.format(before), asserted, "f", limits=limits).fraction == 0
        assert time.monotonic() - started < 2 * limits.wall_s + 0.5
        started = time.monotonic()
        verdict = sandbox.check(code.format(before), "f", [Case((n,), n) for n in range(9)], limits=limits)
        assert not any(verdict.passed)
        assert time.monotonic() - started < 2 * limits.wall_s + 0.5


# Generated attacks: every result, in every place, against every form of test.

RESULTS = [
    *["Yes()", "[Yes()]", "(Yes(),)", "{Yes(): Yes()}", "iter([Yes()])", "(y for y in (Yes(),))", "Yes"],
    *["Yes().__eq__", "lambda *a, **k: True", "float('nan')", "float('inf')", "range(10**18)", "'\\ud800'"],
    *["10**5000", "[]", "''", "{}"],
    *["re.match('a*', 'a')", "collections.deque([Yes()])", "collections.Counter('a')", "decimal.Decimal('NaN')"],
    *["type('S', (str,), dict(__eq__=lambda s, o: True, __hash__=str.__hash__))('x')", "object()", "None", "True"],
    *["type('I', (int,), dict(__eq__=lambda s, o: True, __hash__=int.__hash__))(3)", "NotImplemented", "...", "int"],
    *["fail(StopIteration)", "fail(SystemExit)", "fail(GeneratorExit)", "fail(AssertionError)", "os._exit(0)", "f"],
]
PLACES = [
    "def f(*a, **k): return {}",
    "class f:\n    def __new__(c, *a, **k): return {}",
    "def f(*a, **k):\n    for x in a:\n        if type(x) is list: x[:] = [{}]\n    return a[0]",
    "def f(*a, **k):\n    for x in a:\n        if callable(x): return x({})\n    return {}",
    "seen = []\ndef f(*a, **k):\n    seen.append(a)\n    return [{}, seen][len(seen) % 2]",
]
FORMS = [
    "assert f(1) == '{s}'",
    "assert f([1]) == ['{s}']",
    "assert not f(1) != '{s}'",
    "assert '{s}' in f(1)",
    "assert f(1).startswith('{s}')",
    "assert abs(f(1) - 77.5) < 1e-6",
    "assert f(1)['{s}'] == '{s}'",
    "assert list(f(1)) == ['{s}']",
    "assert sorted(f([3, 1])) == ['{s}', 1, 3]",
    "assert [f(x) for x in (1, 2)] == ['{s}', 5]",
    "for got, want in zip(map(f, [1, 2]), ['{s}', 'b']): assert got == want",
    "assert all(map(lambda x: f(x) == '{s}', [1, 2]))",
    "for v in f(3): assert v == '{s}'",
    "assert f(lambda x: '{s}' if x == '{s}' else 0) == '{s}'",
    "assert set(f([1])) == {{'{s}'}}",
    "assert f(1).group() == '{s}'",
    "assert f(1)('x') == '{s}'",
    "assert next(f(1)) == '{s}'",
    "assert isinstance(f(1), complex) and f(1) == 5j",
    "assert f(1) in ('{s}', 'other')",
]


def generated(count: int) -> list[tuple[str, str]]:
    every = [(result, place, form) for result in RESULTS for place in PLACES for form in FORMS]
    head = YES + "import collections, decimal, os, re\ndef fail(kind): raise kind\n"
    chosen = random.Random(14).sample(every, count)
    return [(head + place.replace("{}", result), form.format(s=SECRET)) for result, place, form in chosen]


@pytest.mark.parametrize("count", [40, pytest.param(600, marks=pytest.mark.slow)])
def test_no_generated_attack_forges_a_verdict(sandbox: Sandbox, count: int) -> None:
    forged = []
    for code, tests in generated(count):
        report = outcome(sandbox, code, tests)
        if report.all_passed or report.fraction:
            forged.append((code.splitlines()[-3:], tests))
    assert forged == []
    assert outcome(sandbox, "def f(x): return x", "assert f(1) == 1").all_passed
