"""Which reward a turn is paid, where an agent leaves before the others."""

from __future__ import annotations

import pytest
import torch

from collm.agents.core import Completion
from collm.algorithms.functions.advantages import monte_carlo_returns
from collm.algorithms.learning.grids import agent_grid
from collm.algorithms.learning.shaping import with_team_rewards
from collm.algorithms.rollout.episode import Episode, Turn


def episode(rewards_by_agent):
    """Rewards of each agent by joint turn; None where it is not there."""
    num_turns = max(len(rewards) for rewards in rewards_by_agent.values())
    tracks = {
        agent: tuple(Turn(t, Completion(0), reward, t) for t, reward in enumerate(rewards) if reward is not None)
        for agent, rewards in rewards_by_agent.items()
    }
    ends = dict.fromkeys(tracks, True)
    return Episode(0, 0, 0, tracks, (), dict.fromkeys(tracks), ends, ({},) * num_turns, num_agents=len(tracks))


def rewards_of(paid):
    return {agent: [turn.reward for turn in track] for agent, track in paid.tracks.items()}


def test_an_agent_that_has_left_is_paid_in_its_last_turn_what_the_team_earns_later():
    played = episode({"a_0": [1.0, 2.0, 4.0], "a_1": [3.0]})
    (paid,) = with_team_rewards([played], 0.5)
    # the team earns (1 + 3) / 2, 2 / 2, 4 / 2
    assert rewards_of(paid) == {"a_0": [2.0, 1.0, 2.0], "a_1": [2.0 + 0.5 * 1.0 + 0.25 * 2.0]}
    assert played.team_return == 5.0


def test_an_agent_that_pauses_is_paid_what_the_team_earns_until_its_next_turn():
    (paid,) = with_team_rewards([episode({"a_0": [2.0, 2.0, 2.0, 2.0], "a_1": [0.0, None, 4.0, None]})], 0.5)
    assert rewards_of(paid)["a_1"] == [1.0 + 0.5 * 1.0, 3.0 + 0.5 * 1.0]


@pytest.mark.parametrize("discount", [0.0, 0.5, 1.0])
def test_equal_rewards_until_a_common_end_stay_as_they_are(discount):
    played = episode({"a_0": [0.1, 0.7, 0.3], "a_1": [0.1, 0.7, 0.3]})
    assert with_team_rewards([played], discount) == [played]


def test_the_return_to_go_of_every_turn_is_the_team_s():
    played = episode({"a_0": [1.0, 2.0, 4.0, -8.0], "a_1": [3.0, 5.0], "a_2": [7.0]})
    (paid,) = with_team_rewards([played], 0.9)
    team = torch.tensor([played.team_rewards])
    expected = monte_carlo_returns(team, torch.ones_like(team, dtype=torch.bool), 0.9)[0]
    for agent, track in played.tracks.items():
        grid = agent_grid([paid], agent, None)
        found = monte_carlo_returns(grid.rewards, grid.is_real, 0.9)[0]
        torch.testing.assert_close(found, expected[[turn.time for turn in track]])
