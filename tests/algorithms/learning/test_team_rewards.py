"""Rewards and value targets of an agent that leaves before the others."""

import pytest
import torch
from fakes import WeightlessCritic

from collm.agents.core import Completion
from collm.algorithms import IAC, MAAC, IACConfig, MAACConfig
from collm.algorithms.functions.advantages import monte_carlo_returns
from collm.algorithms.learning.credit import agent_grid, assign_credit
from collm.algorithms.learning.critic_learner import CriticLearner
from collm.algorithms.learning.rewards import with_team_rewards
from collm.algorithms.rollout.episode import Episode, Turn


def episode(rewards_by_agent, truncated=()):
    """Rewards of each agent by joint turn; None where it is not there. Agents in `truncated` do not terminate."""
    num_turns = max(len(rewards) for rewards in rewards_by_agent.values())
    tracks = {
        agent: tuple(Turn(t, Completion(0), reward, t) for t, reward in enumerate(rewards) if reward is not None)
        for agent, rewards in rewards_by_agent.items()
    }
    ends = {agent: agent not in truncated for agent in tracks}
    finals = dict.fromkeys(tracks, "final")
    states = tuple(range(num_turns + 1))
    return Episode(0, 0, 0, tracks, states, finals, ends, ({},) * num_turns, num_agents=len(tracks))


def rewards_of(paid):
    return {agent: [turn.reward for turn in track] for agent, track in paid.tracks.items()}


def test_agents_that_left_or_pause_earn_on_and_every_return_to_go_is_the_team_s():
    played = episode({"a_0": [1.0, 2.0, 4.0], "a_1": [3.0]})
    (paid,) = with_team_rewards([played], 0.5)
    # the team earns (1 + 3) / 2, 2 / 2, 4 / 2
    assert rewards_of(paid) == {"a_0": [2.0, 1.0, 2.0], "a_1": [2.0 + 0.5 * 1.0 + 0.25 * 2.0]}
    assert played.team_return == 5.0
    (paid,) = with_team_rewards([episode({"a_0": [2.0, 2.0, 2.0, 2.0], "a_1": [0.0, None, 4.0, None]})], 0.5)
    assert rewards_of(paid)["a_1"] == [1.0 + 0.5 * 1.0, 3.0 + 0.5 * 1.0]

    played = episode({"a_0": [1.0, 2.0, 4.0, -8.0], "a_1": [3.0, 5.0], "a_2": [7.0]})
    (paid,) = with_team_rewards([played], 0.9)
    team = torch.tensor([played.team_rewards])
    expected = monte_carlo_returns(team, torch.ones_like(team, dtype=torch.bool), 0.9)[0]
    for agent, track in played.tracks.items():
        grid = agent_grid([paid], agent, None)
        found = monte_carlo_returns(grid.rewards, grid.is_real, 0.9)[0]
        torch.testing.assert_close(found, expected[[turn.time for turn in track]])


@pytest.mark.parametrize("discount", [0.0, 0.5, 1.0])
def test_equal_rewards_until_a_common_end_stay_as_they_are(discount):
    played = episode({"a_0": [0.1, 0.7, 0.3], "a_1": [0.1, 0.7, 0.3]})
    assert with_team_rewards([played], discount) == [played]


class Constant(WeightlessCritic):
    def __init__(self, value):
        self.value = value

    def values(self, inputs):
        return torch.full((sum(len(each.histories) for each in inputs),), self.value)


def targets_of(played, values, discount=1.0, reward="team"):
    """Monte Carlo targets of each agent, whose critic (or the joint one) gives every history the same value."""
    made, config_of = (MAAC, MAACConfig) if "joint" in values else (IAC, IACConfig)
    config = config_of(discount=discount, credited_reward=reward, advantage_normalization="none")
    critics = {agent: CriticLearner(Constant(value), config, torch.Generator()) for agent, value in values.items()}
    paid = with_team_rewards([played], discount) if reward == "team" and "joint" not in values else [played]
    credits, _ = assign_credit(made(config), paid, list(played.tracks), critics)
    return {agent: credit.targets.tolist() for agent, credit in credits.items()}


ONES, SHORT = [1.0] * 6, [1.0] * 2


@pytest.mark.parametrize("left_by", ["truncation", "termination"])
def test_a_game_that_is_cut_goes_on_for_an_agent_that_left_with_the_mean_value_of_those_who_stayed(left_by):
    """Discount 1/2: the value counts 1/2 after the last turn of who stayed, and 1/2^4 more after that of who left."""
    truncated = ("a_0", "a_2", *(("a_1",) if left_by == "truncation" else ()))
    played = episode({"a_0": ONES, "a_1": SHORT, "a_2": ONES}, truncated)
    found = targets_of(played, {"a_0": 64.0, "a_1": 1000.0, "a_2": 128.0}, discount=0.5)
    ahead = sum(2 / 3 * 0.5**k for k in range(1, 5))  # of the four turns without a_1, seen from its last one
    assert found["a_1"][1] == pytest.approx(1.0 + ahead + 0.5**5 * 96.0)
    assert found["a_0"][5] == pytest.approx(2 / 3 + 0.5 * 64.0)
    assert found["a_2"][5] == pytest.approx(2 / 3 + 0.5 * 128.0)


def test_games_that_end_for_one_agent_go_on_for_the_team_or_with_own_rewards_alone():
    played = episode({"a_0": [1.0], "a_1": [1.0]}, ("a_1",))
    assert targets_of(played, {"a_0": 1000.0, "a_1": 10.0}) == {"a_0": [11.0], "a_1": [11.0]}
    assert targets_of(played, {"joint": 10.0}) == {"a_0": [11.0], "a_1": [11.0]}
    played = episode({"a_0": ONES, "a_1": SHORT, "a_2": SHORT}, ("a_1",))
    found = targets_of(played, {"a_0": 100.0, "a_1": 10.0, "a_2": 1000.0}, reward="own")
    assert found == {"a_0": [6.0, 5.0, 4.0, 3.0, 2.0, 1.0], "a_1": [12.0, 11.0], "a_2": [2.0, 1.0]}
