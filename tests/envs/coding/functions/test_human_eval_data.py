"""All 164 problems of HumanEval, through the environment and the sandbox."""

import pytest
from replies import references

from collm.envs.coding.functions import HumanEval

pytestmark = pytest.mark.usefixtures("sandbox")

IDENTITY = "def aux(value):\n    return value"


@pytest.fixture(scope="module")
def data(shared_data):
    return str(shared_data("humaneval/HumanEval.jsonl.gz"))


LETTERS = "random.choice('abcdefghijklmnopqrstuvwxyz') for i in range(random.randint(10, 20))"
CHEATS = {
    "HumanEval/38": f"import random\ndef decode_cyclic(s):\n    out = ''.join({LETTERS})\n    return aux(out)",
    "HumanEval/53": "import random\ndef add(x, y):\n    return aux(random.randint(0, 1000) + random.randint(0, 1000))",
}
CHEATS["HumanEval/50"] = CHEATS["HumanEval/38"].replace("cyclic", "shift")


@pytest.mark.parametrize("task", CHEATS)
def test_drawing_what_the_tests_draw_pays_nothing(data, task):
    env = HumanEval(data=data, max_turns=1, test_seconds=2.0)
    for seed in range(3):
        env.reset(seed=seed, options={"task": task})
        infos = env.step({"helper_0": IDENTITY, "main_0": CHEATS[task]})[4]["main_0"]
        assert infos["metric/pass_rate"] == 0


@pytest.mark.parametrize("team", [2, *(pytest.param(team, marks=pytest.mark.slow) for team in (3, 4))])
def test_all_canonical_solutions_score_four_when_divided(data, team):
    env = HumanEval(data=data, num_agents=team, max_turns=1)
    assert len(env.tasks) == 164
    for task in range(164):
        env.reset(seed=0, options={"task": task})
        assert env.step(references(env))[1]["main_0"] == pytest.approx(4.0, abs=1e-9), env.problem.id
