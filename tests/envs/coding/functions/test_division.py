"""Solutions divided among helpers: they return the same values, and main calls every helper."""

import copy
import json
from pathlib import Path

import pytest

from collm.envs.coding.functions.division import divided
from collm.envs.coding.syntax import function_named, ignores_result, is_thin_wrapper, parsed, uses_function

SAMPLES = Path(__file__).parents[4] / "envs/coding/functions/samples"
NAMES = ("aux_1", "aux_2", "aux_3")


def team(code, count=2, known=()):
    return divided(parsed(code), "f", NAMES[len(known) : len(known) + count], known)


def value(code, *arguments):
    scope = {}
    exec("\n\n".join(code) if isinstance(code, tuple) else code, scope)
    return scope["f"](*copy.deepcopy(arguments))


def test_divisions_by_hand():
    first, second, main = team("def f(a, b):\n    low = a * 2\n    high = b * b - a\n    return low, high")
    assert first == "def aux_1(a):\n    return a * 2"
    assert second == "def aux_2(a, b):\n    return b * b - a"
    assert main == "def f(a, b):\n    low = aux_1(a)\n    high = aux_2(a, b)\n    return (low, high)"
    *helpers, main = team("def f(a, b):\n    return a * b + 1", 1)
    assert helpers == ["def aux_1(a, b):\n    return a * b"] and main.endswith("return aux_1(a, b) + 1")
    *helpers, main = team("def f(a):\n    if a:\n        return a\n    return 0")
    assert helpers == ["def aux_1(value):\n    return value", "def aux_2(value):\n    return value"]
    assert main == "def f(a):\n    if a:\n        return aux_2(aux_1(a))\n    return aux_2(aux_1(0))"
    second, main = team("def f(a, b):\n    return abs(aux_1(a) - aux_1(b)) + a * b", 1, known=("aux_1",))
    assert second == "def aux_2(a, b):\n    return a * b" and main.count("aux_1(") == 2
    code = "import math, re\nfrom os import path\ndef f(a):\n    root = math.sqrt(a + 7)\n    return [root, root]"
    helper, main = team(code, 1)
    assert helper == "import math, re\n\ndef aux_1(a):\n    return math.sqrt(a + 7)" and "from os import path" in main


KEPT = {
    "a lambda, which sees the name change": (
        "def f(n):\n    found = []\n    for i in range(n):\n        found.append(lambda: i + n)\n"
        "    return [each() for each in found] + [n]",
        (3,),
    ),
    "a walrus": ("def f(xs):\n    if (n := len(xs) + 1) > 2:\n        return n * 2\n    return n", ([1, 2],)),
    "a name of a comprehension": ("def f(xs):\n    return [x * 2 + y for x in xs for y in xs if x - y]", ([1, 2, 3],)),
    "a name in and out of a comprehension": (
        "def f(x):\n    found = [x * 2 for x in range(x)]\n    return found + [x + 1]",
        (3,),
    ),
    "a call that changes a list": (
        "def f(xs):\n    total = 0\n    while xs:\n        total += xs.pop() * 2\n    return total",
        ([1, 2],),
    ),
    "recursion": ("def f(n):\n    if n < 2:\n        return n\n    return f(n - 1) + f(n - 2)", (9,)),
    "a function inside": ("def f(n):\n    def g(m):\n        return m + n\n    return g(n * 2) + 1", (3,)),
    "an import inside": ("def f(n):\n    import math\n    return [math.sqrt(n) + n]", (4,)),
    "a name of an exception": (
        "def f(n):\n    try:\n        return 1 / n + 2\n    except ArithmeticError as e:\n        return str(e) + 'x'",
        (0,),
    ),
    "an own frame": ("def f(n):\n    m = n + 1\n    return sorted(locals()) + [m * 2]", (3,)),
    "a string with braces": ("def f(n):\n    text = '{}' + f'{n + 1}' * 2\n    return text + '{name}'", (3,)),
    "a function that the expression needs": (
        "def g(x):\n    return x / 2\ndef f(n):\n    m = g(n) + 1\n    return m * 2",
        (4,),
    ),
    "a second function": ("def g(x):\n    return x + 1\ndef f(n):\n    return g(n) * g(n + 1) + 2", (3,)),
}


@pytest.mark.parametrize("name", KEPT)
@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_divided_solution_returns_what_it_did(name, count):
    code, arguments = KEPT[name]
    codes = team(code, count)
    assert value(codes, *arguments) == value(code, *arguments)
    held_to_the_rules(codes, NAMES[:count])


def held_to_the_rules(codes, names, function="f"):
    main = function_named(parsed(codes[-1]), function)
    assert all(uses_function([main], name) and not ignores_result([main], name) for name in names)
    assert not is_thin_wrapper(main, *names)
    assert all(function_named(parsed(code), name) for name, code in zip(names, codes[:-1], strict=True))


ROWS = [json.loads(line) for path in sorted(SAMPLES.glob("*.jsonl")) for line in path.read_text().splitlines()]


def test_most_helpers_of_the_samples_do_something():
    codes = [divided(parsed(row["main"]), row["entry_point"], ("aux_2", "aux_3"), ("aux",)) for row in ROWS]
    for row, found in zip(ROWS, codes, strict=True):
        held_to_the_rules(found, ("aux_2", "aux_3"), row["entry_point"])
    idle = sum("(value):\n    return value" in code for found in codes for code in found[:-1])
    assert len(codes) == 45 and idle <= 45  # of 90
