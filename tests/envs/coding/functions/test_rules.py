"""The terms of the two programmers' reward, by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collm.envs.coding.extraction import code_in
from collm.envs.coding.functions.problems import problem_of
from collm.envs.coding.functions.rules import MAX_SCORE, programs_of, terms

PROBLEM = problem_of(
    {
        "id": "half",
        "prompt": 'import math\ndef given(x):\n    return x\ndef half_sum(a, b):\n    """Half of the sum."""\n',
        "entry_point": "half_sum",
        "test": "def check(candidate):\n    assert candidate(2, 4) == 3",
    }
)
AUX = "def aux(x):\n    return x / 2"
MAIN = "def half_sum(a, b):\n    return aux(a) + aux(b)"


TEAMS = [
    (AUX, MAIN),
    ("", "def half_sum(a, b):\n    return (a + b) / 2"),
    (AUX, "def half_sum(a, b):\n    return (a + b) / 2"),
    (AUX, "def half_sum(a, b):\n    aux(0)\n    return (a + b) / 2"),
    (AUX, "def half_sum(a, b):\n    h = aux(0)\n    return 0 if h else None"),
    ("def aux(a, b):\n    return (a + b) / 2", "def half_sum(a, b):\n    return aux(a, b)"),
    ("def aux(x):\n    pass", MAIN),
]
"""Every form that a pair which parses can have."""


def reward(helper, main, pass_rate=1.0):
    pair = programs_of(PROBLEM, [code_in(helper)], code_in(main))
    return sum(terms(pair, pass_rate, is_solved=pass_rate == 1).values())


def test_rewards_by_hand():
    for helper, main, pass_rate, expected in [
        (AUX, MAIN, 1.0, 4.0),
        (AUX, MAIN, 0.5, 1.75),
        (AUX, MAIN, 0.99, 1.995),
        (AUX, MAIN, 0.0, 1.5),
        ("", "", 0.0, 0.0),
        (AUX, "", 0.0, 0.4),
        (AUX, "def other(a, b): return 1", 0.0, 0.4),
        ("", MAIN, 0.0, 1.1),
        ("Sorry, I cannot.", "def half_sum(a, b):\n    return (a + b) / 2", 1.0, 2.1),
        ("def aux(x):\n    pass", MAIN, 0.0, 1.1),
        ("def aux(x):\n    print(x)", "def half_sum(a, b):\n    aux(a)\n    return (a + b) / 2", 1.0, 2.1 + 1.5 - 0.5),
        (AUX, "def half_sum(a, b):\n    return (a + b) / 2", 1.0, 2.5),
        (AUX, "def half_sum(a, b):\n    # aux(a)\n    return 'aux(a)' and (a + b) / 2", 1.0, 2.5),
        ("def aux(a, b):\n    return (a + b) / 2", "def half_sum(a, b):\n    return aux(a, b)", 1.0, 3.0),
        (AUX, "def half_sum(a, b):\n    aux(a)\n    return (a + b) / 2", 1.0, 3.5),
        (AUX, "def half_sum(a, b):\n    half = aux(a)\n    return (a + b) / 2", 1.0, 3.5),
        ("def aux(x):\n    return (x", MAIN, 0.0, 0.6),
        (AUX, "def half_sum(a, b):\n    return (a", 0.0, 0.4),
        (f"```python\n{AUX}\n```", f"I call it:\n```python\n{MAIN}\nprint(half_sum(1, 2))\n```", 1.0, 4.0),
        (f"{AUX}\n\n{MAIN}", f"{AUX}\n\n{MAIN}", 1.0, 4.0),
        (MAIN, AUX, 0.0, 0.0),
        ("aux = lambda x: x / 2", MAIN, 1.0, 0.6 + 0.5 + 1.0),
        ("async def aux(x):\n    return x", MAIN, 0.0, 1.1),
        (AUX, "class half_sum: pass", 0.0, 0.4),
    ]:
        assert reward(helper, main, pass_rate) == pytest.approx(expected, abs=1e-9)


def test_a_program_is_what_the_prompt_gives_then_aux_then_main():
    pair = programs_of(PROBLEM, [code_in(f"import re\n{AUX}\nprint(aux(1))")], code_in(f"{AUX}\n{MAIN}"))
    program = pair.program(PROBLEM.preamble)
    order = [program.index(part) for part in ("import math", "def given", "def aux", "def half_sum")]
    assert order == sorted(order) and "print" not in program and program.count("def aux") == 1


@given(st.sampled_from(TEAMS), st.sampled_from(TEAMS), st.floats(0.01, 0.999), st.floats(0.01, 0.999))
def test_more_tests_passed_is_never_less_and_all_are_more_than_any_part(failing, solving, first, second):
    low, high = sorted((first, second))
    assert reward(*failing, low) <= reward(*failing, high) < 2.0 < reward(*solving, 1.0)


ROW = {"id": "half", "prompt": "def f(a, b):\n    pass\n", "entry_point": "f", "test": "assert f(1, 1) == 1"}
ONE, TWO, THREE = (f"def aux_{place}(x):\n    return x / {place}" for place in (1, 2, 3))
ALL = "def f(a, b):\n    return aux_1(a) + aux_2(b)"


def team_terms(helpers, main, pass_rate=1.0):
    programs = programs_of(problem_of(ROW, len(helpers)), list(map(code_in, helpers)), code_in(main))
    return terms(programs, pass_rate, is_solved=pass_rate == 1)


def test_rewards_of_several_helpers_by_hand():
    for helpers, main, pass_rate, expected in [
        ((ONE, TWO), ALL, 1.0, 4.0),
        ((ONE, TWO, THREE), f"{ALL} - aux_3(0)", 1.0, 4.0),
        ((ONE, TWO, THREE), ALL, 1.0, 2.5 + 1.5 * 2 / 3),  # one is not called
        ((ONE, TWO), ALL, 0.5, 1.75),
        ((ONE, ""), ALL, 0.0, 0.2 + 1.1),
        (("", ""), "def f(a, b):\n    return a", 1.0, 2.1),
        ((ONE, TWO), "def f(a, b):\n    return aux_1(a) + b", 1.0, 2.5 + 0.75),
        ((ONE, TWO), "def f(a, b):\n    x = aux_1(a)\n    return aux_2(x)", 1.0, 2.5 + 0.5),  # a wrapper of both
        ((ONE, TWO), "def f(a, b):\n    aux_2(b)\n    return aux_1(a) + b", 1.0, 4.0 - 0.25),
        ((ONE, TWO), "def f(a, b):\n    aux_2(b)\n    aux_1(a)\n    return a + b", 1.0, 4.0 - 0.5),
        ((ONE, f"{ONE}\n{TWO}\n{ALL}"), f"{ONE}\n{ALL}", 1.0, 4.0),  # the others' functions are left out
        ((ONE, ONE), ALL, 0.0, 0.2 + 1.1),  # the wrong name
        ((ONE, "def aux_2(x):\n    return (x"), ALL, 0.0, 0.2 + 0.6),  # one syntax error breaks the program
        ((ONE, "def aux_2(x):\n    print(x)"), ALL, 1.0, 4.0 - 0.2),
        ((ONE, TWO), "def f(a, b):\n    aux_2 = max\n    return aux_1(a) + aux_2(b, 1)", 1.0, 2.5 + 0.75),
        ((ONE, TWO), "", 0.0, 0.4),
        (("def aux(x):\n    return x", TWO), ALL, 0.0, 0.2 + 1.1),  # the name of a lone helper
    ]:
        assert sum(team_terms(helpers, main, pass_rate).values()) == pytest.approx(expected, abs=1e-9)


HELPERS = st.sampled_from(["", ONE, TWO, THREE, ALL, "def aux_2(x): return ("]) | st.text(max_size=60)


@given(
    st.lists(HELPERS, min_size=1, max_size=3),
    st.sampled_from(["", ALL, f"{ALL}\n{ONE}", "def f(a, b):\n    return aux_3(a) or 1"]) | st.text(max_size=60),
    st.floats(0, 1),
)
def test_any_texts_of_a_team_have_a_reward_in_range(helpers, main, pass_rate):
    found = sum(team_terms(helpers, main, pass_rate).values())
    assert 0 <= found <= MAX_SCORE + 1e-12
    assert found < 2.0 or pass_rate == 1
