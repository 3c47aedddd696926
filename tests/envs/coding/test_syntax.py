"""Properties of code that are determined on its syntax tree."""

import pytest
from replies import SHAPES, called_from

from collm.envs.coding import syntax
from collm.envs.coding.syntax import MAX_DEPTH, function_named, needed_statements, parsed, source

FLAT = ("parentheses", "statements", "line", "text", "number", "null")
NESTED = [shape for shape in SHAPES if shape not in FLAT]


@pytest.mark.parametrize("shape", NESTED)
def test_a_tree_that_is_too_deep_is_no_program(shape):
    assert parsed(f"def f(x):\n{SHAPES[shape](2)}") is not None
    for size in (MAX_DEPTH, 180, 900, 5_000):
        assert parsed(f"def f(x):\n{SHAPES[shape](size)}") is None
    tried = (parsed(f"def f(x):\n{SHAPES[shape](size)}") for size in range(MAX_DEPTH, 0, -1))
    deepest = next(found for found in tried if found is not None)  # is written out in half of the stack
    assert called_from(400, lambda: source(deepest)) == source(deepest) is not None


def test_text_that_python_refuses_or_that_is_nested_too_deep_is_no_program():
    for text in ("x = '\x00'", "x = '\ud800'", "x = " + "9" * 5_000, "(" * 5_000, "x = ("):
        assert parsed(text) is None
    deepest = "x = " + "-" * (MAX_DEPTH - 3) + "1"  # 3: the module, the assignment, the number
    assert parsed(deepest) is not None and parsed(deepest.replace("=", "= -")) is None


def function(body):
    return parsed("def main(x):\n    " + body.replace("\n", "\n    "))


def test_only_the_functions_own_values_count_as_returned():
    others = ["return", "pass", "def inner():\n    return 1", "f = lambda: (yield)", '"""return x"""', "# return x\nx"]
    assert all(syntax.returns_value(function(body)[0]) for body in ("return x", "if x:\n    return 1"))
    assert not any(syntax.returns_value(function(body)[0]) for body in others)


USING = ["return aux(x)", "return sorted(x, key=aux)", "def inner():\n    return aux(x)\nreturn inner()"]
NOT_USING = [
    *["return x.aux(x)", "return 'aux(x)'", "# aux(x)\nreturn x", "aux = len\nreturn aux(x)"],
    *["from os import aux\nreturn aux(x)", "def aux(x):\n    return x\nreturn aux(x)", "return [aux for aux in x]"],
    "return (lambda aux: aux(x))(len)",
]


@pytest.mark.parametrize("body", USING + NOT_USING)
def test_a_function_uses_aux_only_if_it_does_not_bind_the_name(body):
    assert syntax.uses_function(function(body), "aux") is (body in USING)


THIN = [
    *["return aux(x)", '"""Words."""\nreturn aux(x)', "y = aux(x)\nreturn y", "y: int = aux(x, 1, key=2)\nreturn y"],
    *["return aux(*x)", "if True:\n    return aux(x)", "aux(x)", "y = x\nz = aux(y)\nreturn z"],
]
WORKING = [
    *["return aux(x) + 1", "return aux(x + 1)", "return [aux(y) for y in x]", "return sum(aux(x))", "return x"],
    *["if x:\n    return aux(x)\nreturn 0", "return aux(x)[0]", "for y in x:\n    aux(y)", "return aux(aux(x))"],
    "return sorted(x, key=aux)",
]


@pytest.mark.parametrize("body", THIN + WORKING)
def test_a_thin_wrapper_only_passes_arguments_and_results_on(body):
    assert syntax.is_thin_wrapper(function(body)[0], "aux") is (body in THIN)


IGNORING = ["aux(x)\nreturn x", "y = aux(x)\nreturn x", "y = z = aux(x)\nreturn x", "aux(x)\naux(x)\nreturn x"]
READING = [
    *["y = aux(x)\nreturn y", "y, z = aux(x)\nreturn z", "x[0] = aux(x)\nreturn x", "return map(aux, x)", "return x"],
    *["if (y := aux(x)):\n    return x", "if (y := aux(x)):\n    return y", "aux(x)\nreturn aux(x)"],
    "y = aux(x)\ndef inner():\n    return y\nreturn inner()",
]


@pytest.mark.parametrize("body", IGNORING + READING)
def test_a_result_is_ignored_if_no_value_is_read(body):
    assert syntax.ignores_result(function(body), "aux") is (body in IGNORING)


PROGRAM = """
import math, os.path
from __future__ import annotations
from string import *
LIMIT: int = 3
LIMIT = LIMIT + 1
unused = open("x")
def inner(y): return min(y, LIMIT)
def aux(x): return math.floor(inner(x))
def main(x): return aux(x)
class Shape: pass
print(aux(3))
if __name__ == "__main__":
    main(3)
"""


def test_a_function_is_taken_with_what_it_needs_and_results_are_passed_through():
    taken = source(needed_statements(parsed(PROGRAM), "aux", foreign={"main"}))
    lines = [line.split("(")[0] for line in taken.splitlines() if not line.startswith(" ") and line]
    limits = ["LIMIT: int = 3", "LIMIT = LIMIT + 1"]
    assert lines == ["import math, os.path", "from string import *", *limits, "def inner", "def aux"]
    taken = needed_statements(parsed(PROGRAM), "main", foreign={"aux"})
    assert function_named(taken, "main") and not function_named(taken, "aux")
    assert needed_statements(parsed(PROGRAM), "missing") == ()
    assert function_named(parsed("def f(): return 1\ndef f(): return 2"), "f").lineno == 2
    node = function("if x:\n    return 1\ndef inner():\n    return 2\nreturn inner()")[0]
    changed = source([syntax.returned_through(node, "main", "aux")])
    assert changed.count("aux(") == 2 and "return aux(1)" in changed and "return 2" in changed
    program = parsed("half = lambda x: aux(x)\ndef main(x):\n    return half(x)")
    assert syntax.uses_function(program, "aux") and not syntax.ignores_result(program, "aux")
