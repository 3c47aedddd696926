"""The published terms of the two programmers' function, by hand cases of its formulas."""

import pytest
from replies import begun

from collm.envs.coding.functions import HumanEval, problem_of, published

PROBLEM = problem_of(
    {
        "id": "half",
        "prompt": 'import math\nfrom typing import List\ndef half_sum(a, b):\n    """Half of the sum."""\n',
        "entry_point": "half_sum",
        "test": "def check(candidate):\n    assert candidate(2, 4) == 3",
    }
)
AUX = "def aux(x):\n    return x / 2"
MAIN = "def half_sum(a, b):\n    left = aux(a)\n    return left + aux(b)"


def test_published_rewards_by_hand():
    for helper, main, pass_rate, expected in [
        (AUX, MAIN, 1.0, 4.0),
        (AUX, MAIN, 0.5, 3.5),
        (AUX, MAIN, 0.0, 1.5),
        ("", "", 0.0, 0.0),
        (AUX, "", 0.0, 0.4),
        (AUX, "def half_sum(a, b):\n    print(a)", 0.0, 0.4),  # no return: not defined
        (AUX, "def half_sum(a, b):\n    return (a + b) / 2", 1.0, 2.5),
        (AUX, "def half_sum(a, b):\n    return aux(a) + aux(b)", 1.0, 3.0),  # one line that names aux: a wrapper
        (AUX, "def half_sum(a, b):\n    half = aux(a + b)\n    return half", 1.0, 3.0),
        (AUX, "def half_sum(a, b):\n    # aux(a)\n    h = a / 2\n    return h + b / 2", 1.0, 4.0),  # a comment calls
        (AUX, "def half_sum(a, b):\n    aux(a)\n    return (a + b) / 2", 1.0, 4.0),  # ignored, and not seen
        (AUX, "def half_sum(a, b):\n    aux (a)\n    return (a + b) / 2", 1.0, 3.5),  # seen in this spacing alone
        (f"import math\nhere:\n```python\n{AUX}\n```", f"```python\n{MAIN}\n```\nThat is it.", 1.0, 4.0),
        ("def aux(x):\n    return (x", MAIN, 1.0, 1.0),
        ("I think aux is not needed.", MAIN, 0.0, 1.1),
    ]:
        found = published.terms(published.programs_of(PROBLEM, [helper, main]), pass_rate)
        assert sum(found.values()) == pytest.approx(expected, abs=1e-9)


def test_functions_wrappers_and_tests_are_told_by_their_lines():
    text = "def aux(x):\n    def inner(y):\n        return y\n    return inner(x)\n\nprint(aux(1))"
    assert published.function_text(text, "aux") == "def aux(x):\n    def inner(y):\n        return y"
    text = "def other():\n    return 1\ndef aux(x):\n\n    return x\nx = 1"
    assert published.function_text(text, "aux") == "def aux(x):\n\n    return x"
    assert published.is_wrapper('def f(x):\n    """Doc."""\n    # note\n    return aux(x) + 1')
    assert published.is_wrapper('def f(x):\n    """Doc\n    of two lines."""')
    assert not published.is_wrapper("def f(x):\n    y = aux(x)\n    return y + 1")
    tests = "def check(candidate):\n    assert candidate(1) == 1\n    assert candidate(1) == 1\n    assert True\n"
    tests += "    assert candidate(\n        2) == 2\n    for i in range(3):\n        assert candidate(i) == i\n"
    lines = published.counted_tests(tests, "f").split("def check(candidate):\n")[1].split("\n")
    found = [line.strip() for line in lines if line]
    assert found == ["assert candidate(1) == 1", "assert False", "assert candidate(i) == i"]
    assert published.imports_of(PROBLEM.prompt) == "import math\nfrom typing import List"


@pytest.mark.usefixtures("sandbox")
def test_every_turn_of_the_published_task_is_paid_in_full_and_shifted():
    env = begun(HumanEval(variant="published"), seed=0)
    main = f"def {env.problem.entry_point}(*a, **k):\n    return None"
    first = env.step({"helper_0": "def aux(x):\n    return x", "main_0": main})[1]["main_0"]
    rewards, terminations = env.step({agent: env.reference_reply(agent) for agent in env.agents})[1:3]
    assert first == pytest.approx(1.5 - 4) and all(terminations.values())
    assert rewards["main_0"] <= 1e-9
