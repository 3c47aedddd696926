"""Rows of the three benchmarks as problems, and arguments drawn for them."""

import random

import pytest

from collm.envs.coding.functions.problems import drawn, drawn_arguments, problem_of, shown_assertions

HUMAN_EVAL = {
    "id": "HumanEval/0",
    "prompt": "from typing import List\n\n\ndef total(xs: List[int]) -> int:\n"
    '    """Sum them.\n    >>> total([1])\n    1\n    """\n',
    "canonical_solution": "    if not xs:\n        return 0\n    return sum(xs)\n",
    "entry_point": "total",
    "test": "METADATA = {}\ndef check(candidate):\n    assert candidate([1]) == 1\n    assert True\n"
    "    for n in range(3):\n        assert candidate([n]) == n\n    assert candidate([]) == 0, 'empty'\n",
}
MBPP = {
    "id": "11",
    "prompt": "Write a function to double a number.",
    "code": "def helper(x):\r\n    return x\r\ndef twice(x):\r\n    return helper(x) * 2",
    "test_imports": ["import math"],
    "test_list": ["assert math.isclose(twice(2), 4)", "assert twice(0) == 0"],
}


def test_rows_of_human_eval_and_mbpp_by_hand():
    problem = problem_of(HUMAN_EVAL)
    assert problem.preamble == "from typing import List"
    assert problem.head == "def total(xs: List[int])"
    assert problem.description.startswith("Sum them.")
    aux, main = problem.reference
    assert aux.startswith("def aux(value)") and main.count("return aux(") == 2
    shown = [(3, "assert total([1]) == 1"), (7, "assert total([]) == 0, 'empty'")]
    assert shown_assertions(HUMAN_EVAL["test"], "total") == shown
    problem = problem_of(MBPP)
    assert problem.entry_point == "twice"
    assert problem.head == "def twice(x)"
    assert problem.tests.splitlines() == ["import math", *MBPP["test_list"]]
    assert problem.preamble == "" and problem.description == MBPP["prompt"]
    assert "return aux(helper(x) * 2)" in problem.reference[1]
    row = {key: value for key, value in MBPP.items() if key != "code"} | {"test_list": ["assert len(twice('a')) == 2"]}
    problem = problem_of(row)
    assert problem.entry_point == problem.head == "twice" and problem.reference is None


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ({"id": 1, "prompt": "x", "entry_point": "f"}, "no column 'test'"),
        ({"id": 1, "prompt": "x", "test": "assert 1 == 1"}, "entry_point"),
        ({"id": 1, "prompt": "x", "entry_point": "f()", "test": "assert 1 == 1"}, "entry_point"),
        ({"id": 1, "prompt": "x", "entry_point": "f", "test": "assert f("}, "not Python"),
    ],
)
def test_a_row_without_a_test_or_a_name_is_refused(row, complaint):
    with pytest.raises(ValueError, match=complaint):
        problem_of(row)


LAWS = [
    ({"int": [-2, 2]}, lambda value: type(value) is int and -2 <= value <= 2),
    ({"float": [0, 1, 2]}, lambda value: value == round(value, 2) and 0 <= value <= 1),
    ({"bool": True}, lambda value: isinstance(value, bool)),
    ({"choice": ["a", [1]]}, lambda value: value in ("a", [1])),
    ({"text": "ab", "length": [1, 3]}, lambda value: set(value) <= {"a", "b"} and 1 <= len(value) <= 3),
    ({"list": {"int": [0, 0]}, "length": [2, 2]}, lambda value: value == [0, 0]),
    ({"fixed": [{"int": [1, 1]}, {"bool": True}]}, lambda value: value[0] == 1 and len(value) == 2),
    ({"dict": [{"choice": ["k"]}, {"int": [3, 3]}], "length": [1, 4]}, lambda value: value == {"k": 3}),
]


def test_values_match_their_description_and_calls_differ_as_far_as_they_can():
    rng = random.Random(0)
    for part, law in LAWS:
        assert all(law(drawn(part, rng)) for _ in range(50)), part
    assert len(set(drawn_arguments([{"int": [0, 99]}], random.Random(0), 20))) == 20
    assert sorted(drawn_arguments([{"bool": True}], random.Random(0), 20)) == [(False,), (True,)]
    with pytest.raises(ValueError, match=r"'integer'.*'inputs'"):
        drawn({"integer": [0, 1]}, random.Random(0))
