"""Classes that two, three and four programmers complete."""

import pytest

from collm.envs.coding.classes import ClassEval

pytestmark = pytest.mark.usefixtures("sandbox")


@pytest.mark.parametrize("team", [3, 4])
def test_a_larger_team_divides_every_class_and_solves_it(team):
    env = ClassEval(num_agents=team)
    for task in range(len(env.tasks)):
        observations = env.reset(seed=0, options={"task": task})[0]
        sizes = [len(share) for share in env.task.shares]
        assert max(sizes) - min(sizes) <= 1 and len(set(env.task.methods)) == sum(sizes)
        assert all(("Three", "Four")[team - 3] in text for text in observations.values())
        rewards = env.step({agent: env.reference_reply(agent) for agent in env.agents})[1]
        assert rewards == pytest.approx(dict.fromkeys(env.possible_agents, 6.0))
