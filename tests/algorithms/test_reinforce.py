"""The family of REINFORCE: by default no two of its members credit a group alike."""

from itertools import combinations

import numpy as np
import pytest
import torch

from collm.agents.core import Completion
from collm.algorithms import algorithm_spec
from collm.algorithms.learning.credit import assign_credit
from collm.algorithms.rollout.episode import Episode, Turn

FAMILY = ("mareinforce", "magrpo", "marloo", "maremax")
REWARDS = ((1.0, 3.0), (2.0, 0.0), (0.0, 6.0), (5.0, 1.0))  # four rollouts of two turns


def episode(index, rewards):
    track = tuple(Turn(0.0, Completion(0), reward, time) for time, reward in enumerate(rewards))
    return Episode(index, 0, 0, {"a_0": track}, (), {"a_0": 0.0}, {"a_0": True}, ({}, {}))


def credited(name, **settings):
    spec = algorithm_spec(name)
    algorithm = spec.make(spec.config(num_generations=4, **settings))
    credits, _ = assign_credit(algorithm, [episode(*each) for each in enumerate(REWARDS)], ["a_0"], {})
    return credits["a_0"].advantages.view(4, 2)


@pytest.mark.parametrize(
    ("name", "first_turns"),
    [
        ("mareinforce", [2.5, 2.0, 3.0, 5.5]),
        ("magrpo", [-0.75, -1.25, -0.25, 2.25]),
        ("marloo", [-1.0, -5 / 3, -1 / 3, 3.0]),
        ("maremax", [-3.0, -3.5, -2.5, 0.0]),
    ],
)
def test_discounted_returns_above_each_baseline_by_hand(name, first_turns):
    # returns at a discount of a half: 1 + 1.5, 2 + 0, 0 + 3, 5 + 0.5
    found = credited(name, discount=0.5, advantage_normalization="none")
    torch.testing.assert_close(found[:, 0], torch.tensor(first_turns))


@pytest.mark.parametrize(("one", "other"), list(combinations(FAMILY, 2)))
def test_by_default_no_two_rules_are_the_same(one, other):
    assert not np.allclose(credited(one), credited(other), atol=1e-2)
