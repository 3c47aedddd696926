"""Correct code passes: operations of public test suites reach the code under test, or fail with a clear message."""

import datetime
import decimal
from collections import Counter, deque
from fractions import Fraction

import pytest

from collm.envs.sandbox import Case, Limits, Sandbox

SHELF = """
from collections import Counter, OrderedDict, defaultdict, deque
import datetime, decimal, fractions

class Shelf:
    kind = 'plain'
    def __init__(self):
        self.items = []
        self.by_name = {'a': {'marks': [1]}}
        self.seen = {1}
        self.queue = deque([1, 2], maxlen=3)
        self.counts = Counter('ab')
        self.raw = bytearray(b'ab')
        self.order = OrderedDict(b=1)
        self.groups = defaultdict(list)
        self.price = decimal.Decimal('1.50')
        self.share = fractions.Fraction(1, 3)
        self.since = datetime.datetime(2024, 1, 2, 3, 4)
    def __getitem__(self, name):
        return self.by_name[name]
    def state(self):
        held = [self.items, self.by_name, self.seen, list(self.queue), dict(self.counts), bytes(self.raw)]
        return held + [list(self.order.items()), dict(self.groups)]
    def each(self):
        yield from self.items
    def fill(self, make, *arguments):
        self.items.append(make(*arguments))
        return self.items
    def sums(self, *values):
        return values[0] + values[1]
    def __iter__(self):
        return iter(self.items)
    def __next__(self):
        if not self.items: raise StopIteration
        return self.items.pop()
    def missing(self):
        raise KeyError('a name')
    def give(self, other, item):
        other.items.append(item)
    @staticmethod
    def double(x):
        return 2 * x
    def __len__(self):
        return len(self.items)
    def __eq__(self, other):
        return self.items == other.items
    def __str__(self):
        return f'Shelf({self.items})'
    def __enter__(self):
        return self
    def __exit__(self, *error):
        self.items = []
"""
METHODS = {
    "writes to a list": "it.items.append(1)\nit.items.append(2)\nself.assertEqual(it.state()[0], [1, 2])",
    "writes to a dict": "it.by_name['b'] = 5\nself.assertEqual([it.state()[1]['b'], it.by_name['b']], [5, 5])",
    "writes far inside": "it.by_name['a']['marks'].append(7)\nself.assertEqual(it.state()[1]['a'], {'marks': [1, 7]})",
    "writes to a part that is held": (
        "marks = it.by_name['a']['marks']\nmarks.append(2)\nself.assertEqual(it.state()[1]['a']['marks'], [1, 2])\n"
        "marks.append(3)\nself.assertEqual(it.state()[1]['a']['marks'], [1, 2, 3])"
    ),
    "writes to a set": "it.seen.add(4)\nself.assertEqual(it.state()[2], {1, 4})",
    "writes to a deque": "it.queue.extend([3, 4])\nself.assertEqual(it.state()[3], [2, 3, 4])",
    "writes to a counter": "it.counts.update('b')\nself.assertEqual(it.state()[4], {'a': 1, 'b': 2})",
    "writes to an ordered dict": "it.order['a'] = 2\nself.assertEqual(it.state()[6], [('b', 1), ('a', 2)])",
    "writes to a default dict": "it.groups['a'] = [1]\nself.assertEqual(it.state()[7], {'a': [1]})",
    "writes to an item": "it['a']['marks'] = 3\nself.assertEqual(it.state()[1], {'a': {'marks': 3}})",
    "clears": "it.items += [1, 2]\nit.items.clear()\nself.assertEqual(it.state()[0], [])",
    "assigns": "it.items = [9]\nit.items.append(8)\nself.assertEqual(it.state()[0], [9, 8])",
    "reads": (
        "self.assertEqual(it.queue, deque([1, 2]))\nself.assertEqual(it.counts.most_common(1), [('a', 1)])\n"
        "self.assertEqual(it.price, Decimal('1.5'))\nself.assertEqual(it.share, Fraction(1, 3))\n"
        "self.assertEqual(it.since.month, 1)\nself.assertEqual(it.order, OrderedDict(b=1))\n"
        "self.assertIsInstance(it.queue, deque)\nself.assertEqual(it.since.year, 2024)"
    ),
    "passes such values": (
        "self.assertEqual(it.sums(Decimal('0.1'), Decimal('0.2')), Decimal('0.3'))\n"
        "self.assertEqual(it.sums(it.since, datetime.timedelta(days=1)).day, 3)\n"
        "self.assertEqual(it.sums(Counter('a'), Counter('ab')), Counter('aab'))\n"
        "self.assertEqual(it.sums(deque([1]), deque([2])), deque([1, 2]))\n"
        "self.assertEqual(it.sums(Fraction(1, 3), Fraction(2, 3)), 1)"
    ),
    "a type and a builtin": "self.assertEqual(it.fill(int, '5'), [5])\nself.assertEqual(it.fill(max, 2, 3), [5, 3])",
    "a function": "self.assertEqual(it.fill(lambda x, y: x * y, 2, 3), [6])",
    "a function that calls back": "self.assertEqual(it.fill(lambda: len(it.state())), [8])",
    "a generator": "it.items = [1, 2]\nself.assertEqual(list(it.each()), [1, 2])\nself.assertEqual(next(it.each()), 1)",
    "its own iterator": "it.items = [1, 2]\nself.assertEqual([next(it), next(it, 0), next(it, 7)], [2, 1, 7])",
    "the end of its iterator": "with self.assertRaises(StopIteration): next(it)",
    "its length and text": "it.items = [1]\nself.assertEqual([len(it), str(it)], [1, 'Shelf([1])'])",
    "its class": "self.assertEqual([Shelf.double(4), Shelf.kind], [8, 'plain'])",
    "another instance": (
        "other = Shelf()\nit.give(other, 4)\nself.assertEqual(other.items, [4])\nself.assertIsInstance(other, Shelf)\n"
        "self.assertNotEqual(it, other)\nit.items = [4]\nself.assertEqual(it, other)"
    ),
    "a context": "with it as shelf: shelf.items.append(2)\nself.assertEqual(it.items, [])\nself.assertIs(shelf, it)",
    "the text of a KeyError": "with self.assertRaisesRegex(KeyError, 'name'): it.missing()",
}
HEAD = """
import unittest, datetime
from collections import Counter, OrderedDict, deque
from decimal import Decimal
from fractions import Fraction
class T(unittest.TestCase):
    def test(self):
        it = Shelf()
"""


def method(body: str) -> str:
    return HEAD + "".join(f"        {line}\n" for line in body.splitlines())


@pytest.mark.parametrize("name", METHODS)
def test_what_tests_do_with_an_object_reaches_it(sandbox: Sandbox, name: str) -> None:
    tests = method(METHODS[name])
    report = sandbox.run_tests(SHELF, tests, "Shelf", classes=("Shelf",))
    assert report.all_passed, report
    broken = "class Shelf:\n    def __init__(self): self.items = self.queue = self.seen = ()"
    assert not sandbox.run_tests(broken, tests, "Shelf", classes=("Shelf",)).all_passed


def test_changes_that_cannot_be_sent_fail_with_a_message(sandbox: Sandbox) -> None:
    held = "held = it.items\nit.fill(int)\nheld.append(5)\nself.assertEqual(it.state()[0], [0, 5])"
    raw = "self.assertEqual(it.raw, b'ab')\nit.raw[0:1] = b'x'"
    for body, reason in ((raw, "TypeError"), (held, "both changed it")):
        (test,) = sandbox.run_tests(SHELF, method(body), "Shelf", classes=("Shelf",)).tests
        assert not test.passed and reason in test.message


CHECKS = {
    "a generator as the result": (
        "def f(n):\n    while True:\n        yield n\n        n += 1",
        "from itertools import islice\nassert list(islice(f(2), 3)) == [2, 3, 4]",
    ),
    "a generator as an argument": ("def f(xs): return sum(xs)", "assert f([x for x in range(4)]) == 6"),
    "a function as an argument": ("def f(g, xs): return sorted(xs, key=g)", "assert f(lambda x: -x, [1, 2]) == [2, 1]"),
    "functions in a list": ("def f(gs): return [g(3) for g in gs]", "assert f([str, lambda x: x + 1]) == ['3', 4]"),
    "a function as the result": ("def f(n): return lambda x: x + n", "assert f(2)(3) == 5"),
    "a decorator": ("def f(g): return lambda *a: g(*a) * 2", "@f\ndef two(x): return x\nassert two(4) == 8"),
    "exceptions of a function": (
        "def f(g):\n    try: return g()\n    except ZeroDivisionError: return 'caught'",
        "assert f(lambda: 1 / 0) == 'caught'",
    ),
    "a match": (
        "import re\ndef f(s): return re.search(r'(?P<n>b)(z)?', s)",
        "m = f('abc')\nassert m and m.group(1) == m['n'] == 'b' and m.span() == (1, 2) and m.groups() == ('b', None)\n"
        "assert m.groupdict() == {'n': 'b'} and (m.start(), m.end(), m.group('n', 0)) == (1, 2, ('b', 'b'))\n"
        "assert f('x') is None and not f('')",
    ),
    "a type": ("def f(xs, kind): return [x for x in xs if type(x) is kind]", "assert f([1, 'a', 2.0], int) == [1]"),
    "a long integer": ("def f(n): return 7**n", "assert f(9000) == 7**9000"),
    "long arguments": (
        "def f(xs): return len(xs)",
        "assert f(list(range(200_000))) == 200_000\nassert f('x' * 1_100_000) == 1_100_000",
    ),
    "many small parts": ("def f(xs): return xs[-1]", "assert f([[n] for n in range(12_000)]) == [11_999]"),
    "a lone surrogate": ("def f(s): return s + '\\ud800'", "assert f('a') == 'a\\ud800'"),
    "a long range": ("def f(n): return range(n)", "assert f(10**18)[-1] == 10**18 - 1"),
    "objects in a list": (
        "class P:\n    def __init__(self, a, b): self.a, self.b = a, b\ndef f(ps): return max(p.b - p.a for p in ps)",
        "assert f([P(1, 5), P(2, 3)]) == 4",
    ),
    "a tree": (
        "class P:\n    def __init__(self, v): self.v, self.left = v, None\ndef f(t): return 1 + f(t.left) if t else 0",
        "root = P(1)\nroot.left = P(2)\nroot.left.left = P(3)\nassert f(root) == 3",
    ),
    "lists changed in place": ("def f(xs): xs.sort()", "a = [2, 1]\nf(a)\nassert a == [1, 2]"),
    "a deque changed in place": (
        "def f(q): q.rotate(1)",
        "from collections import deque\nq = deque([1, 2, 3])\nf(q)\nassert q == deque([3, 1, 2])",
    ),
}


@pytest.mark.parametrize("name", CHECKS)
def test_what_tests_pass_in_and_get_back_is_what_it_was(sandbox: Sandbox, name: str) -> None:
    code, tests = CHECKS[name]
    classes = ("P",) if "class P" in code else ()
    report = sandbox.run_tests(code, tests, "f", classes=classes, limits=Limits(cpu_s=5, wall_s=60))
    assert report.all_passed, report
    broken = code.replace("return", "return None and").replace("yield n", "yield -1").replace(".rotate", ".count")
    assert not sandbox.run_tests(broken, tests + "\nassert f(1)", "f").all_passed


@pytest.mark.parametrize(
    "value",
    [
        *[decimal.Decimal("1.5"), Fraction(1, 3), datetime.datetime(2024, 1, 1), datetime.timedelta(1)],
        *[deque([1, [2]]), Counter("aab"), {"a": [deque([1])]}, int],
    ],
    ids=repr,
)
def test_such_values_are_arguments_and_results_of_plain_calls_too(sandbox: Sandbox, value: object) -> None:
    same = Case((value,), value, keywords={"other": 1})
    assert sandbox.check("def f(x, other): return x", "f", [same, same]).all_passed
    assert sandbox.call("def f(x): return type(x).__name__", "f", [(value,)]).values == (type(value).__name__,)


def test_an_unreadable_value_is_no_tampering(sandbox: Sandbox) -> None:
    report = sandbox.call("def f(n): return 10**n", "f", [(5000,), (2,)])
    assert report.status == "ok" and report.values == (None, 100)
    report = sandbox.call("def f(n): return [[]] * n", "f", [(120_000,)])
    assert report.status == "output_limit" and "parts" in str(report.failure)


POINT = "from collections import namedtuple\nimport enum, dataclasses\nPair = namedtuple('Pair', 'x y')\n"
LIMITS = {
    "a coroutine": ("async def f(x):\n    return x", "assert f(1) == 1", "a coroutine is not plain data"),
    "a dataclass": (
        POINT + "@dataclasses.dataclass\nclass P:\n    x: int\ndef f(x):\n    return P(x)",
        "assert f(1).x == 1",
        "a P is not plain data",
    ),
    "an enum": (
        POINT + "class C(enum.Enum):\n    RED = 1\ndef f(x):\n    return C(x)",
        "assert f(1).name == 'RED'",
        "a C is not plain data",
    ),
    "a field of a named tuple": (POINT + "def f(x): return Pair(x, 2)", "assert f(1).y == 2", "has no attribute 'y'"),
    "output": (
        "def f(x):\n    print(x)",
        "import contextlib, io\nheard = io.StringIO()\nwith contextlib.redirect_stdout(heard):\n    f(1)\n"
        "assert heard.getvalue()",
        "",
    ),
    "a thread": ("import threading\ndef f(x): threading.Thread(target=f).start()", "assert f(1) is None", "thread"),
}


@pytest.mark.parametrize("name", LIMITS)
def test_a_documented_limit_fails_with_its_reason(sandbox: Sandbox, name: str) -> None:
    code, tests, reason = LIMITS[name]
    report = sandbox.run_tests(code, tests, "f")
    assert not report.all_passed and reason in report.tests[0].message
