"""All 164 problems of HumanEval, through the environment and the sandbox."""

import ast
import itertools

import pytest
from replies import references

from collm.envs.coding.functions import HumanEval
from collm.envs.coding.functions.problems import problem_of

pytestmark = pytest.mark.usefixtures("sandbox")

IDENTITY = "def aux(value):\n    return value"
BODIES = {
    "empty": "aux(0)",
    "wrong constant": "return [aux('wrong')]",
    "exit": "import sys\n    aux(0)\n    sys.exit(0)",
    "equal to everything": (
        "class Yes(int):\n        __eq__ = lambda *_: True\n        __ne__ = lambda *_: False\n"
        "        __lt__ = __le__ = __gt__ = __ge__ = __eq__\n        __hash__ = int.__hash__\n"
        "        __sub__ = __rsub__ = __abs__ = __add__ = __getitem__ = lambda self, *_: self\n    return aux(Yes())"
    ),
}


@pytest.fixture(scope="module")
def data(request):
    path = request.config.rootpath / "../shared/data/humaneval/HumanEval.jsonl.gz"
    if not path.exists():
        pytest.skip("the 164 problems of HumanEval are not here")
    return str(path)


@pytest.fixture(scope="module")
def env(data):
    made = HumanEval(data=data, max_turns=1, test_seconds=2.0)
    assert len(made.tasks) == 164
    return made


def scored(env, task, aux, main):
    env.reset(seed=0, options={"task": task})
    _, rewards, _, _, infos = env.step({"helper_0": aux, "main_0": main})
    return rewards["main_0"], infos["main_0"]


LETTERS = "random.choice('abcdefghijklmnopqrstuvwxyz') for i in range(random.randint(10, 20))"
CHEATS = {
    "HumanEval/38": f"import random\ndef decode_cyclic(s):\n    out = ''.join({LETTERS})\n    return aux(out)",
    "HumanEval/53": "import random\ndef add(x, y):\n    return aux(random.randint(0, 1000) + random.randint(0, 1000))",
}
CHEATS["HumanEval/50"] = CHEATS["HumanEval/38"].replace("cyclic", "shift")


@pytest.mark.parametrize("task", CHEATS)
def test_drawing_what_the_tests_draw_pays_nothing(env, task):
    for seed in range(3):
        env.reset(seed=seed, options={"task": task})
        infos = env.step({"helper_0": IDENTITY, "main_0": CHEATS[task]})[4]["main_0"]
        assert infos["metric/pass_rate"] == 0


def head(problem):
    function = next(node for node in ast.parse(problem.prompt).body if getattr(node, "name", "") == problem.entry_point)
    return f"def {problem.entry_point}({ast.unparse(function.args)}):\n    ", [each.arg for each in function.args.args]


@pytest.mark.parametrize("team", [2, *(pytest.param(team, marks=pytest.mark.slow) for team in (3, 4))])
def test_all_canonical_solutions_score_four_when_divided(data, team):
    env = HumanEval(data=data, num_agents=team, max_turns=1)
    for task in range(164):
        env.reset(seed=0, options={"task": task})
        assert env.step(references(env))[1]["main_0"] == pytest.approx(4.0, abs=1e-9), env.problem.id


@pytest.mark.slow
def test_every_problem_fails_all_kinds_of_broken_solutions(env):
    for task, kind in itertools.product(range(164), BODIES):
        problem = problem_of(env.tasks[task])
        reward, infos = scored(env, task, IDENTITY, head(problem)[0] + BODIES[kind])
        assert not infos["metric/solved"] and reward < 4.0, (problem.id, kind)


@pytest.mark.parametrize("task", range(0, 164, 12))
def test_a_main_without_aux_scores_two_and_a_half_and_a_wrapper_three(env, task):
    row = env.tasks[task]
    problem = problem_of(row)
    alone = row["prompt"] + row["canonical_solution"]
    assert scored(env, task, IDENTITY, alone)[0] == pytest.approx(2.5, abs=1e-9)
    start, names = head(problem)
    wrapper = f"{start}return aux({', '.join(names)})"
    whole = alone.replace(f"def {problem.entry_point}(", "def aux(")
    assert scored(env, task, whole, wrapper)[0] == pytest.approx(3.0, abs=1e-9)
