"""A critic learns what it is told, in units of its targets, from this update's turns and those of recent ones."""

import copy

import numpy as np
import pytest
import torch
from fakes import WeightlessCritic

from collm.agents.core import CriticInput
from collm.agents.numeric.critics import NumericCritic
from collm.agents.numeric.features import Features
from collm.algorithms import MAACConfig
from collm.algorithms.learning import critic_learner
from collm.algorithms.learning.critic_learner import CriticLearner


def numbers(**settings):
    critic = NumericCritic(Features(num_numbers=2), [Features(num_choices=(3,), starts=(0,))], hidden_dims=(16,))
    return CriticLearner(critic, MAACConfig(**settings), torch.Generator().manual_seed(0))


def inputs(count, length=3, seed=0):
    rng = np.random.default_rng(seed)
    return [CriticInput(tuple(rng.normal(size=(length, 2)).astype(np.float32))) for _ in range(count)]


def test_values_are_in_reward_units_whatever_the_scale_of_targets():
    learner = numbers(critic_learning_rate=1e-2, critic_steps=40)
    seen = inputs(16)
    targets = torch.tensor([500.0 + 100.0 * float(h[0]) for item in seen for h in item.histories])
    for _ in range(10):
        learner.learn(seen, targets)
    assert (learner.values(seen) - targets).abs().mean() < 30
    plain = numbers(value_normalization=False)
    plain.learn(inputs(4), torch.full((12,), 7.0))
    assert float(plain.moments.count) == 0


def test_q_learns_what_was_done_apart_from_where():
    learner = numbers(critic_learning_rate=1e-2, critic_steps=50)
    rng = np.random.default_rng(0)
    seen, targets = [], []
    for item in inputs(30, length=2):
        actions = tuple(int(each) for each in rng.integers(0, 3, 2))
        seen.append(CriticInput(item.histories, actions))
        targets += [float(action) for action in actions] * 2
    for _ in range(10):
        learner.learn(seen, torch.tensor(targets))
    values = learner.values([CriticInput((np.zeros(2, np.float32),) * 3, (0, 1, 2))])
    torch.testing.assert_close(values[3:], torch.tensor([0.0, 1.0, 2.0]), atol=0.3, rtol=0)
    assert (values[:3] - 1).abs().max() < 0.3  # V is the mean over what was done


def test_the_replay_keeps_single_turns_of_the_last_updates():
    learner = numbers(critic_replay=2, critic_batch_size=4)
    for _ in range(3):
        learner.learn(inputs(2), torch.zeros(6))
    assert [len(update) for update in learner.replay] == [6, 6]  # turns of vectors, each on its own
    item = CriticInput(("a", "b", "c"), (1, 2, 0), ("one", "two", "three"))
    entries = critic_learner._turns(critic_learner.ReplayEntry(item, torch.arange(6.0)))
    expected = [(("a",), (1,), ("one",)), (("b",), (2,), ("two",)), (("c",), (0,), ("three",))]
    assert [entry.input for entry in entries] == [CriticInput(*each) for each in expected]
    assert [entry.targets.tolist() for entry in entries] == [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]]


@pytest.mark.parametrize(("steps", "size"), [(1, 2), (3, 100)])
def test_steps_and_their_size_are_the_settings(steps, size):
    learner = numbers(critic_steps=steps, critic_batch_size=size)
    drawn = []
    inner = learner._gradient
    learner._gradient = lambda optimizer, items, earlier: drawn.append(len(items)) or inner(optimizer, items, earlier)
    learner.learn(inputs(4), torch.zeros(12))
    assert drawn == [min(size, 12)] * steps


class Constant(WeightlessCritic):
    """The same value everywhere: one weight."""

    def __init__(self):
        self.weight = torch.nn.Parameter(torch.zeros(()))

    def values(self, inputs):
        return self.weight.expand(sum(len(each.histories) for each in inputs))

    def parameters(self):
        return [self.weight]


def test_a_value_clip_is_around_the_values_of_this_update_and_not_those_of_collection():
    """By hand: V was 0 when the turn was collected and is 1 now, its target is 5, the clip 0.2: 2 (1 - 5) = -8."""
    config = MAACConfig(value_clip_range=0.2, critic_replay=2, critic_steps=1, value_normalization=False)
    learner = CriticLearner(Constant(), config, torch.Generator())
    learner.optimizer.learning_rate = 0.0
    learner.optimizer.set_progress(0)
    seen = [CriticInput((np.zeros(2, np.float32),))]
    learner.learn(seen, torch.tensor([5.0]))
    learner.critic.weight.data.fill_(1.0)
    metrics = learner.learn(seen, torch.tensor([1.0]))  # this one is met, so that the older one makes the gradient
    assert metrics["critic_grad_norm"] == pytest.approx(8 / 2)
    assert metrics["value_loss"] == pytest.approx(16 / 2)


def test_a_critic_goes_on_from_its_saved_state_as_if_never_stopped():
    learner, twin = numbers(), numbers()
    learner.learn(inputs(4), torch.linspace(0, 1, 12))
    twin.load_state_dict(copy.deepcopy(learner.state_dict()))
    for each in (learner, twin):
        each.learn(inputs(4, seed=1), torch.linspace(0, 2, 12))
    assert torch.equal(learner.values(inputs(3)), twin.values(inputs(3)))


@pytest.mark.parametrize(("dtype", "scales"), [(torch.float16, True), (torch.bfloat16, False), (torch.float32, False)])
def test_losses_are_scaled_for_a_critic_that_computes_in_float16_alone(dtype, scales, monkeypatch):
    monkeypatch.setattr(NumericCritic, "compute_dtype", dtype)
    assert numbers().optimizer.scaler.is_enabled() is scales
