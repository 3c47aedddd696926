"""All 164 problems of HumanEval, through the environment and the sandbox."""

import pytest
from replies import references

from collm.envs.coding.functions import HumanEval

pytestmark = pytest.mark.usefixtures("sandbox")


@pytest.mark.parametrize("team", [2, *(pytest.param(team, marks=pytest.mark.slow) for team in (3, 4))])
def test_all_canonical_solutions_score_four_when_divided(shared_data, team):
    env = HumanEval(data=str(shared_data("humaneval/HumanEval.jsonl.gz")), num_agents=team, max_turns=1)
    assert len(env.tasks) == 164
    for task in range(164):
        env.reset(seed=0, options={"task": task})
        assert env.step(references(env))[1]["main_0"] == pytest.approx(4.0, abs=1e-9), env.problem.id
