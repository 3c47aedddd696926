"""MiniCode: a helper and a main programmer, one line each."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from replies import references

from collm.envs.coding.mini_code import VOCABULARY, MiniCode, demonstration, new_task
from collm.envs.coding.mini_code.language import parsed_function, value
from collm.envs.coding.mini_code.prompts import AGENTS, parsed_reply, phrase, prompt
from collm.envs.coding.mini_code.rules import Exercise, Operand, expected, is_held_out, new_inputs, result, terms

TASK = Exercise(Operand(("double",), "x"), "plus", Operand(("square",), "y"))
INPUTS = ((1, 2), (-3, 4), (5, -1), (0, 3))
AUX = "def aux ( x ) : return 2 * x"
MAIN = "def main ( x , y ) : return aux ( x ) + ( y * y )"


def reward(aux, main, task=TASK, needs_both=True):
    inputs = INPUTS if task is TASK else new_inputs(random.Random(0), task, 8)
    found = result(task, inputs, parsed_reply(aux), parsed_reply(main), needs_both=needs_both)
    return sum(terms(found, needs_both=needs_both).values())


@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize("num_operations", [2, 3, 4])
@pytest.mark.parametrize("num_tests", [1, 8])
def test_reference_programmers_reach_one(split, num_operations, num_tests):
    env = MiniCode(split, num_operations=num_operations, num_tests=num_tests)
    for task in range(100):
        env.reset(seed=task, options={"task": task})
        _, rewards, terminations, _, infos = env.step(references(env))
        assert rewards == pytest.approx(dict.fromkeys(AGENTS, 1.0), abs=1e-9)
        assert all(terminations.values()) and infos["main_0"]["metric/success"] == 1


def test_pairs_score_by_hand():
    for aux, main, score in [
        (AUX, MAIN, 1.0),
        ("def aux(x):\n    return x + x", "def main(a, b):\n    return b * b + aux(a)", 1.0),
        ("def aux ( x ) : return x * x", "def main ( x , y ) : return 2 * x + aux ( y )", 1.0),
        ("def aux ( x ) : return x * x", MAIN, 0.3 + 0.7 * 1 / 4),  # x*x + y*y: right only at x = 0
        (AUX, "def main ( x , y ) : return 2 * x + y * y", 0.2 + 0.1),  # alone
        (AUX, "def main ( x , y ) : return 2 * x + y * y + 0 * aux ( x )", 0.2 + 0.1),  # aux changes nothing
        ("def aux ( x ) : return x", "def main ( x , y ) : return 2 * aux ( x ) + y * y", 0.2 + 0.1),  # the identity
        ("def aux ( x ) : return 2", "def main ( x , y ) : return aux ( x ) * x + y * y", 0.2 + 0.1),
        ("", "def main ( x , y ) : return 2 * x + y * y", 0.1 + 0.1),
        ("", MAIN, 0.1),
        (AUX, "", 0.1),
        (AUX, AUX, 0.1),
        (AUX, "def main ( x ) : return aux ( x )", 0.2),
        (AUX, "def main ( x , y ) : return main ( x , y )", 0.2),
        (AUX, "def main ( x , y ) : return aux ( x , y )", 0.2),
        ("def aux ( x ) : return x // 0", MAIN, 0.2),
        ("def aux ( x ) : return aux ( x )", MAIN, 0.2),
        (AUX, "def main ( x , y ) : return aux ( x )", 0.3),
        ("", "", 0.0),
    ]:
        assert reward(aux, main) == pytest.approx(score, abs=1e-9)


UNDOING = "def main ( x , y ) : return 2 * ( aux ( x ) - 1 ) + y * y"
SECRET = (
    "def main ( x , y ) : return aux ( x ) + y * y"
    " + 1 // ( 1 + ( aux ( 9 ) - 10 ) * ( aux ( 9 ) - 10 ) ) * ( 2 * x - aux ( x ) )"
)
PACKED = (
    "def aux ( x ) : return 2 * ( ( x + 50 ) // 100 )"
    " + ( x - 100 * ( ( x + 50 ) // 100 ) ) * ( x - 100 * ( ( x + 50 ) // 100 ) )"
)


def test_a_pair_of_which_one_does_all_earns_little_if_both_are_needed():
    for aux, main, without in [
        ("def aux ( x ) : return x + 1", UNDOING, 1.0),
        ("def aux ( x ) : return x + 1", SECRET, 1.0),  # main computes both operands only if aux is x + 1
        ("def aux ( x , y ) : return 2 * x + y * y", "def main ( x , y ) : return aux ( x , y )", 1.0),
        (PACKED, "def main ( x , y ) : return aux ( 100 * x + y )", 1.0),
        (AUX, "def main ( x , y ) : return 2 * x + y * y + 0 * aux ( x )", 0.4),
    ]:
        assert reward(aux, main) < 0.5
        assert reward(aux, main, needs_both=False) == pytest.approx(without)


def test_main_may_write_its_part_in_any_way_and_one_aux_may_be_both_operands():
    for main in ("y * y + aux ( x )", "- ( - aux ( x ) - y * y )", "aux ( x + 0 ) + y * y"):
        assert reward(AUX, f"def main ( x , y ) : return {main}") == pytest.approx(1.0)
    assert reward(AUX, "def main ( a , b ) : return aux ( a ) + b * b") == pytest.approx(1.0)
    task = Exercise(Operand(("double",), "y"), "minus", Operand(("double",), "x"))
    for main in ("aux ( y ) - aux ( x )", "aux ( y ) - 2 * x", "2 * y - aux ( x )"):
        assert reward(AUX, f"def main ( x , y ) : return {main}", task) == pytest.approx(1.0)
    task = Exercise(Operand(("double", "square"), "x"), "plus", Operand(("odd",), "y"))
    whole = ("def aux ( x ) : return 2 * x * x", "def main ( x , y ) : return aux ( x ) + y % 2")
    part = ("def aux ( x ) : return x * x", "def main ( x , y ) : return 2 * aux ( x ) + y % 2")
    assert reward(*whole, task) == pytest.approx(1.0)
    assert reward(*part, task) < 0.45 < reward(*part, task, needs_both=False)
    assert parsed_reply(f"```python\n{AUX}\n```").name == "aux"
    assert parsed_reply(f"Here:\n```python\n{AUX}\n```") is None
    task = Exercise(Operand(("half", "square"), "y"), "minus", Operand(("negate",), "x"))
    assert phrase(task) == "half of square of y minus negate of x"
    assert expected(task, (4, 5)) == 12 - -4


OTHER_EXPRESSIONS = [
    *["x ** 2", "x / 2", "z", "True", "x if x else 1", "x ( 1 )", "aux ( x = 1 )", "aux ( * x )", "", "x , x", "x.y"],
    *["x ; return x", "'1'", "1234", "x def g ( x ) : return x", "- " * 100 + "x", "é"],
]
OTHER_PROGRAMS = [
    *["def f ( x , x ) : return x", "def f ( f ) : return f", "def f ( x = 1 ) : return x", "def f ( * x ) : return 1"],
    *["def f ( x ) : x", "async def f ( x ) : return x", "@f def f ( x ) : return x", "x + 1"],
    "sure : def f ( x ) : return x",
]


@pytest.mark.parametrize("text", [*(f"def f ( x ) : return {each}" for each in OTHER_EXPRESSIONS), *OTHER_PROGRAMS])
def test_other_programs_do_not_parse(text):
    assert parsed_function(text) is None


@given(st.text(max_size=200) | st.lists(st.sampled_from([*VOCABULARY, "**", "lambda"]), max_size=40).map(" ".join))
def test_any_text_is_scored(text):
    for aux, main in [(text, MAIN), (AUX, text), (text, text)]:
        assert 0 <= reward(aux, main) <= 1


expressions = st.recursive(
    st.sampled_from(["x", "y", "0", "7", "12"]),
    lambda inner: (
        st.builds("( {} {} {} )".format, inner, st.sampled_from(["+", "-", "*", "//", "%"]), inner)
        | inner.map("( - {} )".format)
    ),
    max_leaves=10,
)


@given(expressions)
def test_a_function_has_the_value_that_python_gives_it_within_bounds(expression):
    function = parsed_function(f"def f ( x , y ) : return {expression}")
    if function is None:
        assert len(expression.split()) > 50
        return
    try:
        wanted = eval(expression, {"x": 5, "y": -3})
    except ZeroDivisionError:
        wanted = None
    try:
        assert value(function, (5, -3), {}) == wanted
    except ArithmeticError:
        assert wanted is None or "*" in expression
    with pytest.raises(ArithmeticError, match="beyond"):
        value(parsed_function("def f ( x ) : return " + " * ".join(["999"] * 10)), (1,), {})


def test_splits_share_no_task_and_tests_are_drawn_for_each_episode():
    def unordered(task):
        return frozenset([(task.left.operations, task.left.variable), (task.right.operations, task.right.variable)])

    def tasks(split):
        return {(unordered(task), task.combination) for task in (new_task(i, 2, split) for i in range(3000))}

    train, test = tasks("train"), tasks("test")
    assert not train & test and len(train) > 150 and len(test) > 30
    assert is_held_out(TASK) == is_held_out(Exercise(TASK.right, TASK.combination, TASK.left))
    rng = random.Random(0)
    assert len({new_inputs(rng, TASK, 8) for _ in range(100)}) == 100
    assert len(set(new_inputs(rng, TASK, 64))) == 64


def test_texts_use_only_the_vocabulary_and_demonstrations_parse_mostly_and_succeed_rarely():
    rng = random.Random(5)
    for num_operations in (2, 3, 4):
        for _ in range(50):
            for messages in demonstration(rng, num_operations=num_operations).values():
                assert {word for message in messages for word in message.content.split()} <= set(VOCABULARY)
    for agent in AGENTS:
        long = prompt(TASK, agent, is_explained=True)
        assert long.endswith("\n" + prompt(TASK, agent)) and "def " in long
    rng, env = random.Random(0), MiniCode()
    numbers = {prompt(new_task(number), "helper_0"): number for number in range(3000)}
    seen = []
    for _ in range(400):
        messages = demonstration(rng)
        env.reset(seed=0, options={"task": numbers[messages["helper_0"][0].content]})
        seen.append(env.step({agent: read[-1].content for agent, read in messages.items()})[4]["main_0"])
    assert 0.17 < sum(infos["reward/helper_parses"] + infos["reward/main_parses"] for infos in seen) / 400 < 0.195
    assert 0.5 < sum(infos["metric/uses_aux"] for infos in seen) / 400 < 0.85
    assert 0.15 < sum(infos["metric/success"] for infos in seen) / 400 < 0.35


def test_wrong_settings_and_tasks_are_refused():
    wrong = [("split", "valid"), ("num_operations", 1), ("num_operations", 5), ("num_tests", 0), ("num_tests", 65)]
    for name, setting in wrong:
        with pytest.raises(ValueError, match=name):
            MiniCode(**{name: setting})
    for task in ("double", 3.5, True, -1):
        with pytest.raises(ValueError, match=f"task={task!r}"):
            MiniCode().reset(options={"task": task})
    with pytest.raises(RuntimeError, match="call reset"):
        MiniCode().reference_reply("main_0")
