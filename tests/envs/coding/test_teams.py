"""Shares of the work of two, three and four programmers."""

import pytest

from collm.envs.coding.classes import ClassEval
from collm.envs.coding.functions import HumanEval
from collm.envs.wrappers import Shares

pytestmark = pytest.mark.usefixtures("sandbox")


def shares(env, replies):
    env.reset(seed=1)
    rewards, *_, infos = env.step({agent: replies(env.unwrapped, agent) for agent in env.agents})[1:]
    agents = env.possible_agents
    return [infos[agents[0]][f"metric/share/{agent}"] for agent in agents], rewards[agents[0]]


@pytest.mark.parametrize("team", [2, 3, pytest.param(4, marks=pytest.mark.slow)])
def test_shares_tell_helpers_that_help_from_those_for_show_and_that_one_wrote_the_whole_class(team):
    env = Shares(HumanEval(num_agents=team, max_turns=1))
    found, earned = shares(env, lambda world, agent: world.reference_reply(agent))
    assert earned == pytest.approx(4.0) and min(found) > 0.1
    found, earned = shares(env, lambda world, agent: world.exploits()["helpers for show"](agent))
    assert earned == pytest.approx(4.0) and found == [0.0] * (team - 1) + [1.0]
    env = Shares(ClassEval(num_agents=team, max_turns=1))

    def last_writes_all(world, agent):
        is_last = agent == world.agents[-1]
        return "\n\n".join(world.reference_reply(each) for each in world.agents) if is_last else "pass"

    found, earned = shares(env, last_writes_all)
    assert earned == pytest.approx(6.0) and found == [0.0] * (team - 1) + [1.0]
