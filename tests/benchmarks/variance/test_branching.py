"""Branches against a game small enough to be written out: two who draw a part of every list at random."""

from __future__ import annotations

from math import comb

import numpy as np
import pytest

from collm.agents.core import Completion, Policy
from collm.agents.decoding.sampling import uniforms
from collm.algorithms.rollout.collector import RolloutCollector, grouped_plans
from collm.benchmarks.variance.baselines import (
    explained_by_turn,
    explained_share,
    group_mean_values,
    returns_to_go,
    table_values,
)
from collm.benchmarks.variance.branching import branched_returns, turn_effects
from collm.benchmarks.variance.noise import effect_correlation, traced
from collm.envs.games.mini_shift import MiniShift
from collm.envs.vectors.vector import SyncVector

TURNS = 4
NEEDED = 3
"""Divided lists of four that make 7 parts of 8, over 0.85."""


class Drawing(Policy):
    """Names either part of the newest list, from the request's own stream."""

    def act(self, requests, *, greedy=False):
        answers = []
        for request in requests:
            words = str(request.observation.messages[-1].content).split("goal ")[-1].split()
            first = 2 * int(uniforms(request.stream, 1)[0] < 0.5)
            answers.append(Completion(" ".join(words[first : first + 2])))
        return answers


def chance(turn, divided):
    """Success from here on, where so many of the lists before this turn were divided."""
    left, missing = TURNS - turn, NEEDED - divided
    return sum(comb(left, k) for k in range(max(0, missing), left + 1)) / 2**left


@pytest.fixture(scope="module")
def played():
    vector = SyncVector(lambda: MiniShift(max_turns=TURNS), 8)
    policies = dict.fromkeys(vector.possible_agents, Drawing())
    collector = RolloutCollector(vector, policies)
    return policies, collector.collect(grouped_plans(range(10), 4))


def divided_lists(episode):
    return np.cumsum([0, *(info["metric/ok"] == 2 for info in episode.infos)])


def test_branches_of_a_turn_come_to_its_chance_of_success(played):
    policies, episodes = played
    num_branches = 16
    returns = branched_returns(lambda: MiniShift(max_turns=TURNS), policies, episodes, num_branches)
    exact = np.array([[chance(turn, k) for turn, k in enumerate(divided_lists(each))] for each in episodes])
    assert (returns[:, :, TURNS] == exact[:, TURNS]).all(), "the end of an episode is its own return"
    mean = returns.mean(axis=0)
    spread = np.sqrt(exact * (1 - exact) / num_branches)
    assert mean[spread == 0] == pytest.approx(exact[spread == 0])
    deviations = ((mean - exact) / np.where(spread == 0, 1, spread))[spread > 0]
    assert abs(deviations.mean()) < 4 / np.sqrt(deviations.size)
    assert 0.7 < deviations.std() < 1.3
    # The critic that knows these chances tells every turn's effect; one that knows nothing, a part of it.
    effects = turn_effects(returns)
    rewards = np.array([episode.team_rewards for episode in episodes])
    ideal = traced(rewards, np.stack([exact[:, :-1]] * 2), 0.0)
    assert ideal == pytest.approx(np.stack([np.diff(exact, axis=1)] * 2))
    assert effect_correlation(ideal, effects) == pytest.approx(1.0, abs=0.15)
    blind = effect_correlation(traced(rewards, np.zeros((2, *rewards.shape)), 1.0), effects)
    exactly = [np.corrcoef(rewards[:, -1], one)[0, 1] for one in np.diff(exact, axis=1).T]
    assert blind == pytest.approx(np.mean(exactly), abs=0.2) and blind < 0.85


def test_the_table_is_the_chance_where_enough_is_known(played):
    _, episodes = played
    vector = SyncVector(lambda: MiniShift(max_turns=TURNS), 8)
    known = RolloutCollector(vector, dict.fromkeys(vector.possible_agents, Drawing())).collect(
        grouped_plans(range(1000, 1400), 1)
    )
    values = table_values(known, episodes)
    exact = np.array([[chance(turn, k) for turn, k in enumerate(divided_lists(each)[:-1])] for each in episodes])
    assert np.abs(values - exact).mean() < 0.05
    found = explained_by_turn(np.stack([exact]), episodes)
    assert found[0] == pytest.approx(0.0) and found[-1] > 0.3
    # One reward, at the end: the return to go has one spread in all turns, so that the share is the mean of the turns.
    assert explained_share(np.stack([exact]), episodes) == pytest.approx(np.mean(found))


def test_the_mean_of_the_others_in_a_group_by_hand(played):
    _, episodes = played
    values = group_mean_values(episodes)
    own = [episode for episode in episodes if episode.group == 3]
    row = episodes.index(own[1])
    assert values[row] == pytest.approx(np.mean([returns_to_go(each) for each in (own[0], *own[2:])], axis=0))


def test_halves_need_an_even_number_of_branches(played):
    policies, episodes = played
    with pytest.raises(ValueError, match="even"):
        branched_returns(lambda: MiniShift(max_turns=TURNS), policies, episodes[:1], 3)
