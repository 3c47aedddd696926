"""Classes that two, three and four programmers complete."""

import pytest
from replies import earned_and_read

from collm.envs.coding.classes import ClassEval

pytestmark = pytest.mark.usefixtures("sandbox")


@pytest.mark.parametrize(
    ("settings", "episodes", "expected", "text"),
    [
        ({"partner_code": True}, 12, 55.666666666666664, "a06162f29106034f"),
        ({"variant": "published", "previous_response": False}, 4, -29.0, "96b126ebfdd43978"),
    ],
)
def test_two_read_and_earn_what_they_did_when_there_were_no_larger_teams(settings, episodes, expected, text):
    """Sums of rewards, and a hash of all that was read, at commit 7942a3f."""
    assert earned_and_read(ClassEval(**settings), episodes) == (pytest.approx(expected, abs=1e-9), text)


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


@pytest.mark.parametrize("number", [1, 5, True, 2.5, "3"])
def test_a_team_that_cannot_play_is_refused(number):
    with pytest.raises(ValueError, match="num_agents must be 2 to 4, got"):
        ClassEval(num_agents=number)


def test_the_published_variant_has_two_programmers():
    with pytest.raises(ValueError, match="num_agents=3"):
        ClassEval(num_agents=3, variant="published")
