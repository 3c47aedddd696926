"""Potential-based shaping: over an episode it adds a constant."""

import random

import pytest
from replies import begun, references, steps_of

from collm.envs import make
from collm.envs.views import TurnLimit
from collm.envs.wrappers import PotentialShaping

ID = "collm/MiniBuild-v0"


def quality(world):
    """Parts that stand, and a constant: the potential of the first state is not 0."""
    return 2.0 + len(world._site.built)


def discounted(env, discount, rng):
    """The discounted return of the first agent, and the potential of the first state."""
    env.reset(seed=rng.randrange(100))
    first = quality(env.unwrapped)
    total, factor = 0.0, 1.0
    while env.agents:
        replies = {agent: rng.choice([env.unwrapped.reference_reply(agent), "nothing"]) for agent in env.agents}
        _, rewards, *_ = env.step(replies)
        total += factor * rewards["builder_0"]
        factor *= discount
    return total, first


@pytest.mark.parametrize("discount", [1.0, 0.9, 0.0])
def test_an_episode_is_worth_what_it_was_less_the_first_potential_whatever_is_played(discount):
    for number in range(10):
        shaped, first = discounted(PotentialShaping(make(ID), quality, discount), discount, random.Random(number))
        plain, _ = discounted(make(ID), discount, random.Random(number))
        assert shaped == pytest.approx(plain - first)


def test_turns_by_hand_and_a_truncated_episode_keeps_its_potential():
    env = PotentialShaping(make(ID, max_turns=2), quality, 0.5)
    steps = steps_of(env)
    paid = [(infos["builder_1"]["reward/shaping"], rewards["builder_1"]) for _, rewards, *_, infos in steps]
    assert paid == [(0.5 * 4 - 2, 0.0 + 0.0), (0 - 4.0, 1.0 - 4.0)]  # two parts stand after a turn, four at the end
    env = begun(PotentialShaping(TurnLimit(make(ID), 1), quality), seed=0)
    _, rewards, _, truncations, _ = env.step(references(env))
    assert truncations["builder_0"] and rewards["builder_0"] == 2.0
    with pytest.raises(ValueError, match=r"discount.*got 1\.5"):
        PotentialShaping(make(ID), quality, 1.5)
    with pytest.raises(ValueError, match=r"potential.*got inf"):
        PotentialShaping(make(ID), lambda world: float("inf")).reset(seed=0)
