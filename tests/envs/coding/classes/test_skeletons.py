"""Division of a class into methods per programmer, and the merge of their code."""

import ast
from textwrap import indent

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collm.envs.coding.classes.rules import MAX_SCORE, terms
from collm.envs.coding.classes.skeletons import delivery_of, merged, task_of
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


def test_the_first_programmer_writes_methods_of_self_alone_and_what_methods_need_comes_along():
    assert TASK.shares == (("reset",), ("up", "kinds", "get"))
    assert TASK.methods == ("reset", "up", "kinds", "get")
    assert TASK.skeleton.startswith("import math\nfrom typing import List\n")
    assert TASK.tests.startswith("import math\n")
    around = "import math, os\nLIMIT = 3\ndef half(x): return x / 2\nunused()"
    text = f"{around}\ndef up(self, by):\n    half(LIMIT, math)\n{RESET}"
    delivery = delivery_of(TASK, code_in(text))
    assert [ast.unparse(node).split("(")[0] for node in delivery.around] == ["import math, os", "LIMIT = 3", "def half"]


def test_methods_are_found_in_a_class_or_bare_and_empty_ones_only_on_request():
    for text in (
        f"{UP}\n\n{GET}",
        f"class Counter:\n{indent(UP, '    ')}\n{indent(GET, '    ')}",
        f"Here:\n```python\n{UP}\n```\nand\n```python\n{GET}\n```",
        f"{indent(UP, '    ')}\n\n{indent(GET, '    ')}",
        f"{UP}\n{GET}\ncounter = Counter()\nprint(counter.get())",
    ):
        assert set(delivery_of(TASK, code_in(text)).methods) == {"up", "get"}
    for body in ("pass", "...", "'''Words.'''", "raise NotImplementedError", "return 1"):
        code = code_in(f"def reset(self):\n    {body}")
        assert set(delivery_of(TASK, code).methods) == ({"reset"} if body == "return 1" else set())
        assert set(delivery_of(TASK, code, keeps_empty=True).methods) == {"reset"}


def test_the_merged_class_keeps_what_is_given_and_takes_the_owners_version():
    program = merged(TASK, deliveries(RESET, UP))
    assert list(methods(program)) == ["__init__", "name", "reset", "up"]
    assert "step = 1" in program and "import math" in program
    assert merged(TASK, deliveries(RESET, "def up(self, by):\n    return (")) is None
    mine, theirs = "def reset(self):\n    return 'mine'", "def reset(self):\n    return 'theirs'"
    assert "mine" in methods(merged(TASK, deliveries(mine, theirs)))["reset"]
    assert "theirs" in methods(merged(TASK, deliveries("", theirs)))["reset"]
    both = deliveries(mine.replace("reset", "kinds"), theirs.replace("reset", "kinds"))
    assert "theirs" in methods(merged(TASK, both))["kinds"]
    text = "class Counter:\n    def __init__(self):\n        self.number = 99\n    def reset(self):\n        return 1"
    assert "99" not in merged(TASK, deliveries(text, ""))


@given(*[st.lists(st.sampled_from([UP, RESET, KINDS, GET]), unique=True)] * 4, st.floats(0, 0.999))
def test_a_class_that_fails_a_test_scores_less_than_any_that_solves_the_task(first, second, third, fourth, pass_rate):
    failing, solving = (deliveries("\n".join(one), "\n".join(two)) for one, two in ((first, second), (third, fourth)))
    low = sum(terms(TASK, failing, pass_rate, is_solved=False).values())
    high = sum(terms(TASK, solving, 1.0, is_solved=True).values())
    assert low < 4 <= high <= MAX_SCORE


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"class_name": "Other"}, "class 'Other'"),
        ({"skeleton": "class Counter:\n    def up(self): return 1"}, "no empty method"),
        ({"skeleton": "class Counter"}, "skeleton"),
        ({"test": "class"}, "tests"),
    ],
)
def test_a_row_that_is_no_task_is_refused(change, complaint):
    with pytest.raises(ValueError, match=complaint):
        task_of(ROW | change)
