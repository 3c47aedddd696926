"""Dividing a class, and putting it together again."""

import ast

import pytest

from collm.envs.coding.classes.rules import published_terms, terms
from collm.envs.coding.classes.skeletons import delivery_of, is_empty, merged, task_of
from collm.envs.coding.extraction import code_in
from collm.envs.coding.syntax import parsed

SKELETON = '''
class Counter:
    """Counts."""

    step = 1

    def __init__(self):
        self.number = 0

    def name(self):
        return "counter"

    def up(self, by):
        """Count up."""

    def reset(self):
        """Begin again."""
        pass

    @staticmethod
    def kinds():
        raise NotImplementedError("yet")

    def get(self, *, exact=True):
        ...
'''
ROW = {
    "id": "counter",
    "class_name": "Counter",
    "skeleton": SKELETON,
    "import_statement": ["import math", "from typing import List"],
    "test": "class Test(unittest.TestCase):\n    pass",
}
TASK = task_of(ROW)
UP, RESET = "def up(self, by):\n    self.number += by", "def reset(self):\n    self.number = 0"
KINDS, GET = "@staticmethod\ndef kinds():\n    return 1", "def get(self, *, exact=True):\n    return self.number"


def deliveries(first, second):
    return delivery_of(TASK, code_in(first)), delivery_of(TASK, code_in(second))


def methods(program):
    target = next(node for node in parsed(program) if isinstance(node, ast.ClassDef))
    return {node.name: ast.unparse(node) for node in target.body if isinstance(node, ast.FunctionDef)}


def test_methods_of_self_alone_are_the_first_programmers():
    assert TASK.shares == (("reset",), ("up", "kinds", "get"))
    assert TASK.methods == ("reset", "up", "kinds", "get")


def test_imports_of_the_row_are_put_before_the_skeleton_and_the_tests():
    assert TASK.skeleton.startswith("import math\nfrom typing import List\n")
    assert TASK.tests.startswith("import math\n")


@pytest.mark.parametrize(
    ("body", "is_bare"),
    [("pass", True), ("...", True), ("'''Words.'''", True), ("raise NotImplementedError", True), ("return 1", False)],
)
def test_an_empty_function_does_nothing(body, is_bare):
    assert is_empty(parsed(f"def f():\n    {body}")[0]) is is_bare


@pytest.mark.parametrize(
    "text",
    [
        f"{UP}\n\n{GET}",
        f"class Counter:\n    {UP.replace(chr(10), chr(10) + '    ')}\n    {GET.replace(chr(10), chr(10) + '    ')}",
        f"Here:\n```python\n{UP}\n```\nand\n```python\n{GET}\n```",
        f"    {UP.replace(chr(10), chr(10) + '    ')}\n\n    {GET.replace(chr(10), chr(10) + '    ')}",
        f"{UP}\n{GET}\ncounter = Counter()\nprint(counter.get())",
    ],
)
def test_methods_are_found_in_a_class_or_bare(text):
    assert set(delivery_of(TASK, code_in(text)).methods) == {"up", "get"}


def test_empty_methods_count_as_not_written():
    assert not delivery_of(TASK, code_in('def up(self, by):\n    """Count up."""')).methods


def test_what_methods_need_around_them_comes_along():
    around = "import math, os\nLIMIT = 3\ndef half(x): return x / 2\nunused()"
    text = f"{around}\ndef up(self, by):\n    half(LIMIT, math)\n{RESET}"
    delivery = delivery_of(TASK, code_in(text))
    assert [ast.unparse(node).split("(")[0] for node in delivery.around] == ["import math, os", "LIMIT = 3", "def half"]


def test_the_merged_class_keeps_what_is_given_and_leaves_out_what_nobody_wrote():
    program = merged(TASK, deliveries(RESET, UP))
    assert list(methods(program)) == ["__init__", "name", "reset", "up"]
    assert "step = 1" in program and "import math" in program


def test_of_two_versions_the_owners_is_taken():
    mine, theirs = "def reset(self):\n    return 'mine'", "def reset(self):\n    return 'theirs'"
    assert "mine" in methods(merged(TASK, deliveries(mine, theirs)))["reset"]
    assert "theirs" in methods(merged(TASK, deliveries("", theirs)))["reset"]
    both = deliveries(mine.replace("reset", "kinds"), theirs.replace("reset", "kinds"))
    assert "theirs" in methods(merged(TASK, both))["kinds"]


def test_the_constructor_is_the_skeletons():
    text = "class Counter:\n    def __init__(self):\n        self.number = 99\n    def reset(self):\n        return 1"
    assert "99" not in merged(TASK, deliveries(text, ""))


@pytest.mark.parametrize(
    ("first", "second", "pass_rate", "expected"),
    [
        (RESET, f"{UP}\n{KINDS}\n{GET}", 1.0, 6.0),
        (RESET, f"{UP}\n{KINDS}\n{GET}", 0.5, 3.0),
        (RESET, UP, 0.25, 2.0 * 2 / 4 + 0.5),
        (f"{RESET}\n{UP}\n{KINDS}\n{GET}", "", 1.0, 6.0),
        (f"{RESET}\n{UP}", f"{UP}\n{KINDS}\n{GET}", 1.0, 6.0 - 1 / 4),
        ("", "", 0.0, 0.0),
        ("def other(self): return 1", "", 0.0, 0.0),
        (RESET, UP, None, 0.0),
    ],
)
def test_rewards_by_hand(first, second, pass_rate, expected):
    points = terms(TASK, deliveries(first, second), pass_rate, is_solved=pass_rate == 1)
    assert sum(points.values()) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(
    ("first", "second", "pass_rate", "expected"),
    [
        (RESET, f"{UP}\n{KINDS}\n{GET}", 0.5, 4.0),
        (RESET, UP, 0.25, 2.0 * 2 / 4 + 1.0),
        (f"{RESET}\n{UP}", f"{UP}\n{KINDS}\n{GET}", 1.0, 6.0 - 1 / 4),
        (RESET, UP, None, 0.0),
    ],
)
def test_published_rewards_by_hand(first, second, pass_rate, expected):
    points = published_terms(TASK, deliveries(first, second), pass_rate)
    assert sum(points.values()) == pytest.approx(expected, abs=1e-9)


def test_an_empty_method_counts_on_request():
    code = code_in("def reset(self):\n    pass")
    assert not delivery_of(TASK, code).methods
    assert set(delivery_of(TASK, code, keeps_empty=True).methods) == {"reset"}


def test_a_method_that_does_not_parse_breaks_the_merged_class():
    assert merged(TASK, deliveries(RESET, "def up(self, by):\n    return (")) is None


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"class_name": "Other"}, "class 'Other'"),
        ({"skeleton": "class Counter:\n    def up(self): return 1"}, "leaves no method"),
        ({"skeleton": "class Counter"}, "skeleton"),
        ({"test": "class"}, "tests"),
    ],
)
def test_a_row_that_is_no_task_is_refused(change, complaint):
    with pytest.raises(ValueError, match=complaint):
        task_of(ROW | change)
