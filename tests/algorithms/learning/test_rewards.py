"""Rewards that are learned from, by hand: shift, scale, processor, and a price on divergence from the reference."""

import math

import numpy as np
import pytest
import torch

from collm.agents.core import Completion
from collm.algorithms.config import TrainConfig
from collm.algorithms.learning.loss_terms import with_penalties
from collm.algorithms.learning.rewards import reward_rule, with_rule
from collm.algorithms.rollout.episode import Episode, Turn


def turn(reward, logprobs, time):
    return Turn("", Completion("", np.array(logprobs, np.float32)), reward, time)


def played(**tracks):
    made = {agent: tuple(turn(*each, time) for time, each in enumerate(track)) for agent, track in tracks.items()}
    return Episode(3, 4, 5, made, (), {}, dict.fromkeys(made, True), ({},) * 2, True, 7.0)


EPISODES = [
    played(a=[(1.0, [-1.0, -2.0]), (2.0, [-0.5])], b=[(-1.0, [-3.0]), (0.0, [])]),
    played(b=[(5.0, [-0.25])]),
    played(a=[(4.0, [-1.5])], b=[(0.5, [-2.5])]),
]


def rewards(episodes):
    return [{agent: [each.reward for each in track] for agent, track in e.tracks.items()} for e in episodes]


@pytest.mark.parametrize(
    ("settings", "processor", "given", "expected"),
    [
        ({}, lambda reward: 10 * reward, 3.0, 30.0),
        ({"reward_shift": 1.0}, None, 3.0, 4.0),
        ({"reward_scale": 2.0}, None, 3.0, 6.0),
        ({"reward_shift": 1.0, "reward_scale": 2.0}, None, 3.0, 8.0),
        ({"reward_shift": 1.0, "reward_scale": 2.0}, lambda reward: -reward, 3.0, -8.0),
        ({"reward_shift": -3.0, "reward_scale": 0.0}, None, 3.0, 0.0),
    ],
)
def test_rewards_are_shifted_then_scaled_then_processed_if_there_is_a_rule(settings, processor, given, expected):
    rule = reward_rule(TrainConfig(**settings), processor)
    assert rule is not None and rule(given) == expected
    doubled = with_rule(EPISODES, lambda reward: 2 * reward)
    assert rewards(doubled) == [{a: [2 * r for r in track] for a, track in e.items()} for e in rewards(EPISODES)]
    assert [(e.index, e.seed, e.group, e.earlier_return) for e in doubled] == [(3, 4, 5, 7.0)] * 3

    assert reward_rule(TrainConfig(), None) is None
    assert with_rule(EPISODES, None) == EPISODES


ESTIMATES = {  # of the log-probability under the policy and under the reference
    "k1": lambda own, other: own - other,
    "k2": lambda own, other: (own - other) ** 2 / 2,
    "k3": lambda own, other: math.exp(other - own) - 1 - (other - own),
}


def charges(before, after, agent):
    return [one.reward - other.reward for one, other in zip(before.tracks[agent], after.tracks[agent], strict=True)]


@pytest.mark.parametrize("estimator", [None, "k1", "k2", "k3"])
def test_a_turn_pays_for_the_divergence_of_its_tokens_by_hand(estimator):
    config = TrainConfig(reference_kl_coef=0.5, reference_kl_in="reward", reference_kl_estimator=estimator)
    anchors = {"a": [torch.tensor([-1.5, -1.0, -0.75]), torch.tensor([-1.0])]}
    price = {(0, 0): [(-1.0, -1.5), (-2.0, -1.0)], (0, 1): [(-0.5, -0.75)], (2, 0): [(-1.5, -1.0)]}
    estimate = ESTIMATES[estimator or "k1"]
    expected = rewards(EPISODES)
    for (episode, time), pairs in price.items():
        expected[episode]["a"][time] -= 0.5 * sum(estimate(*pair) for pair in pairs)
    found = with_penalties(EPISODES, anchors, config)
    for one, other in zip(rewards(found), expected, strict=True):
        assert one == {agent: pytest.approx(track, rel=1e-6) for agent, track in other.items()}
    summed = with_penalties(EPISODES, anchors, config, sums_over_team=True)
    for episode, charged, plain in zip(summed, found, EPISODES, strict=True):  # the mean over agents is the whole price
        prices = [sum(paid) for paid in zip(*(charges(plain, charged, agent) for agent in plain.tracks), strict=True)]
        team = [before - after for before, after in zip(plain.team_rewards, episode.team_rewards, strict=True)]
        assert team[: len(prices)] == pytest.approx(prices, rel=1e-6, abs=1e-6)
    both = with_penalties(EPISODES, {**anchors, "b": [torch.full((1,), -1.0)] * 3}, config)
    assert rewards(both)[0]["b"] == [pytest.approx(-1.0 - 0.5 * estimate(-3.0, -1.0), rel=1e-6), 0.0]
