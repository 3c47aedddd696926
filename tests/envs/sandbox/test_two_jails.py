"""Test sources run in one jail against code in another jail."""

import pytest

from collm.envs.sandbox import Limits, Sandbox

CHECK = """
METADATA = {}

def check(candidate):
    assert candidate(1) == 2
    for number in range(3):
        assert candidate(number) == number + 1
    assert True, "always"
    assert abs(candidate(4) - 5.0) < 1e-6, "near"
"""
RIGHT = "def f(x):\n    return x + 1"
COUNTER = """
class Counter:
    def __init__(self, number):
        self.number = number
    def add(self, by):
        self.number += by
        return self.number
"""
UNITTEST = """
import unittest
class TestCounter(unittest.TestCase):
    def setUp(self):
        self.counter = Counter(5)
    def test_add(self):
        self.assertEqual(self.counter.add(3), 8)
    def test_number(self):
        self.assertEqual(self.counter.number, 5)
if __name__ == '__main__':
    unittest.main()
"""


def names_failed(report) -> list[str]:
    return [test.name for test in report.tests if not test.passed]


def test_assertions_are_counted_one_by_one_and_what_is_not_reached_does_not_pass(sandbox: Sandbox) -> None:
    tests = "def check(candidate):\n    assert candidate(1) == 2\n    candidate('x')\n    assert candidate(2) == 3"
    report = sandbox.run_tests(RIGHT, tests, "f")
    assert [test.passed for test in report.tests] == [True, False]
    assert report.failure.kind == "TypeError"
    assert not report.all_passed
    tests = "def check(candidate):\n    if candidate(1) != 2: raise ValueError('no')"
    assert sandbox.run_tests(RIGHT, tests, "f").all_passed
    assert names_failed(sandbox.run_tests("def f(x): return 3", tests, "f")) == ["check"]
    assert not sandbox.run_tests(RIGHT, "x = 1", "f").all_passed
    report = sandbox.run_tests(RIGHT, CHECK, "f")
    assert report.all_passed
    assert [(test.name, test.line) for test in report.tests] == [
        ("assert candidate(1) == 2", 5),
        ("assert candidate(number) == number + 1", 7),
        ('assert abs(candidate(4) - 5.0) < 1e-6, "near"', 9),
    ]
    partly = sandbox.run_tests("def f(x):\n    return 2", CHECK, "f")
    assert [test.passed for test in partly.tests] == [True, False, False]
    assert partly.fraction == 1 / 3
    assert partly.tests[2].message == "AssertionError: near"
    report = sandbox.run_tests(RIGHT, "assert f(1) == 2\nassert f(2) == 4\nassert f(3) == 4", "f")
    assert [test.passed for test in report.tests] == [True, False, True]
    assert not report.all_passed


def test_each_method_of_a_unittest_is_a_test(sandbox: Sandbox) -> None:
    report = sandbox.run_tests(COUNTER, UNITTEST, "Counter", classes=("Counter",))
    assert report.all_passed and len(report.tests) == 2, report
    broken = COUNTER.replace("self.number += by", "pass")
    assert names_failed(sandbox.run_tests(broken, UNITTEST, "Counter", classes=("Counter",))) == [
        "TestCounter.test_add"
    ]


def test_a_dead_solution_is_not_taken_for_an_expected_exception_and_may_get_another_life(sandbox: Sandbox) -> None:
    tests = """
import unittest
class T(unittest.TestCase):
    def test_any(self):
        with self.assertRaises(Exception):
            f(1)
    def test_swallowed(self):
        try:
            f(1)
        except Exception:
            return
        self.fail('no exception')
"""
    assert sandbox.run_tests("def f(x): raise KeyError(x)", tests, "f").all_passed
    for code in ("import sys\nsys.exit(0)", "import os\ndef f(x): os._exit(0)"):
        assert sandbox.run_tests(code, tests, "f").fraction == 0
    code = "def f(x):\n    while x == 1: pass\n    return x + 1"
    limits = Limits(cpu_s=0.2, wall_s=10, max_deaths=2)
    report = sandbox.run_tests(code, "assert f(0) == 1\nassert f(1) == 2\nassert f(2) == 3", "f", limits=limits)
    assert [test.passed for test in report.tests] == [True, False, True]
    assert report.status == "cpu_limit"
    assert not report.all_passed


def test_support_is_the_trusted_helper_and_texts_of_failures_can_always_be_encoded(sandbox: Sandbox) -> None:
    support = "def helper(x):\n    return x * 10\ndef f(x):\n    return 'replaced by the solution'"
    tests = "def check(candidate):\n    assert candidate(2) == helper(2)"
    hostile = "def helper(x): return None\ndef f(x): return None"
    assert sandbox.run_tests("def f(x): return x * 10", tests, "f", support=support).all_passed
    assert not sandbox.run_tests(hostile, tests, "f", support=support).all_passed
    code = "def f(x):\n    print('\\ud800')\n    raise ValueError('\\udfff')"
    report = sandbox.call(code, "f", [(1,)])
    tested = sandbox.run_tests(code, "assert f(1) == 2", "f")
    for text in (report.stdout, str(report.outcomes[0].failure), tested.tests[0].message):
        assert "?" in text
        text.encode()


@pytest.mark.parametrize("tests", ["assert f(1 ==", "raise ValueError('broken')\nassert f(1) == 2", "while True: pass"])
def test_broken_tests_pass_nobody_and_say_so(sandbox: Sandbox, tests: str) -> None:
    report = sandbox.run_tests(RIGHT, tests, "f", limits=Limits(cpu_s=0.2, wall_s=20))
    assert not report.all_passed
    assert report.test_failure is not None or report.failure is not None
    assert report.fraction == 0


@pytest.mark.parametrize(
    "said",
    [
        *('["plan"]', '["plan",5]', '["plan",[["a"]]]', '["result",0,true,""]', '["done"]', '["do",1,2,3]'),
        *('["plan",[["a",1]]]","["result",1e999,true,""]', '["do","call"]', '["broken",[]]', "[]", "5", "[[[["),
    ],
)
def test_hostile_tests_are_contained_too(sandbox: Sandbox, said: str) -> None:
    tests = f"""
import os, struct
for body in {said!r}.split('","'):
    os.write(4, struct.pack('!I', len(body)) + body.encode())
os._exit(0)
assert f(1) == 2"""
    report = sandbox.run_tests(RIGHT, tests, "f", limits=Limits(cpu_s=0.3, wall_s=5))
    assert not report.all_passed
    assert report.test_failure is not None
    assert sandbox.run_tests(RIGHT, CHECK, "f").all_passed
