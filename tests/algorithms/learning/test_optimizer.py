"""AdamW with a clipped gradient and a schedule, against its formulas in NumPy."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch
from torch import nn

from collm.algorithms.config import TrainConfig
from collm.algorithms.learning import optimizer as optimizers
from collm.algorithms.learning.metrics import Tally
from collm.algorithms.learning.optimizer import Optimizer, scheduled


def made(values, rate=0.1, **settings):
    parameter = nn.Parameter(torch.tensor(values, dtype=torch.float64))
    return parameter, Optimizer([parameter], rate, TrainConfig(**settings))


def step(parameter, optimizer, gradient):
    optimizer.zero_grad()
    assert parameter.grad is None
    parameter.grad = torch.tensor(gradient, dtype=torch.float64)
    return optimizer.step(float(optimizer.clip()))


def test_steps_are_those_of_adamw_with_its_gradient_clipped():
    settings = {"adam": (0.8, 0.9, 0.01), "weight_decay": 0.3, "max_grad_norm": 1.0}
    parameter, optimizer = made([1.0, -2.0], **settings)
    weight, mean, square = np.array([1.0, -2.0]), np.zeros(2), np.zeros(2)
    for number, gradient in enumerate(([3.0, 4.0], [0.3, -0.4], [0.0, 6.0]), start=1):
        norm = np.linalg.norm(gradient)
        assert step(parameter, optimizer, gradient) == pytest.approx(norm)  # the norm before it is clipped
        clipped = np.array(gradient) / max(1.0, norm)
        weight = weight * (1 - 0.1 * 0.3)
        mean, square = 0.8 * mean + 0.2 * clipped, 0.9 * square + 0.1 * clipped**2
        unbiased = np.sqrt(square / (1 - 0.9**number))
        weight = weight - 0.1 * mean / (1 - 0.8**number) / (unbiased + 0.01)
        np.testing.assert_allclose(parameter.detach().numpy(), weight, rtol=1e-5)


@pytest.mark.parametrize("gradient", [[math.inf, 0.0], [0.0, math.nan]])
def test_a_gradient_that_is_not_finite_is_refused_and_changes_nothing(gradient):
    parameter, optimizer = made([1.0, -2.0])
    with pytest.raises(FloatingPointError, match=r"lower the learning rate \(0.1\)"):
        step(parameter, optimizer, gradient)
    assert parameter.tolist() == [1.0, -2.0]


def test_a_scaled_gradient_that_overflows_halves_the_scale_and_changes_nothing():
    parameter = nn.Parameter(torch.tensor([1.0, -2.0]))
    optimizer = Optimizer([parameter], 0.1, TrainConfig(), scales_loss=True)
    torch.autograd.backward(optimizer.scaled(parameter.sum() * 0.0))  # which sets the scale up
    optimizer.zero_grad()
    scale = optimizer.scaler.get_scale()
    torch.autograd.backward(optimizer.scaled((parameter * torch.tensor([3e38, 1.0])).sum()))
    assert optimizer.step(float(optimizer.clip())) is None
    assert (optimizer.scaler.get_scale(), parameter.tolist()) == (scale / 2, [1.0, -2.0])
    optimizer.zero_grad()
    torch.autograd.backward(optimizer.scaled((parameter * torch.tensor([3.0, 4.0])).sum()))
    assert optimizer.step(float(optimizer.clip())) == pytest.approx(5.0)  # the scale is divided out again
    assert parameter.tolist() != [1.0, -2.0]


CASES = [  # settings, then the rate of each update as a share of the peak
    ({"num_updates": 3}, [1, 1, 1]),
    ({"num_updates": 3, "warmup_updates": 3}, [1 / 4, 2 / 4, 3 / 4, 1]),
    ({"num_updates": 4, "learning_rate_schedule": "linear"}, [1, 3 / 4, 2 / 4, 1 / 4]),
    ({"num_updates": 5, "learning_rate_schedule": "linear", "warmup_updates": 1}, [1 / 2, 1, 3 / 4, 2 / 4, 1 / 4]),
    ({"num_updates": 3, "learning_rate_schedule": "cosine"}, [1, 3 / 4, 1 / 4]),
    ({"num_updates": 1, "learning_rate_schedule": "linear", "warmup_updates": 1}, [1 / 2, 1, 0]),
    ({"num_updates": 2, "learning_rate_schedule": "cosine", "warmup_updates": 2}, [1 / 3, 2 / 3, 1]),
]


@pytest.mark.parametrize(("settings", "shares"), CASES)
def test_schedules_by_hand(settings, shares):
    config = TrainConfig(**settings)
    assert [scheduled(update, config) for update in range(len(shares))] == pytest.approx(shares)
    _, optimizer = made([1.0], rate=0.02, **settings)
    for update, share in enumerate(shares):
        optimizer.set_progress(update)
        assert [group["lr"] for group in optimizer.adamw.param_groups] == [pytest.approx(0.02 * share)]


def test_a_saved_optimizer_goes_on_as_the_one_that_never_stopped():
    (one, first), (other, second) = made([1.0, 2.0]), made([1.0, 2.0])
    step(one, first, [0.5, -0.5])
    other.data.copy_(one.data)
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    for each in (one, first), (other, second):
        step(*each, [0.1, 0.2])
    assert torch.equal(one, other)


@pytest.mark.parametrize("rate", [-1e-9, math.nextafter(optimizers.MAX_LEARNING_RATE, math.inf), math.inf, math.nan])
def test_rates_at_which_no_weight_could_stay_finite_are_refused(rate):
    with pytest.raises(ValueError, match="learning rate"):
        made([1.0], rate=rate)


@pytest.mark.parametrize("rate", [0.0, optimizers.MAX_LEARNING_RATE])
def test_rates_at_the_ends_of_the_range_are_taken(rate):
    assert made([1.0], rate=rate)[1].learning_rate == rate


def test_a_step_returns_the_metrics_of_its_passes_with_the_norm():
    parameter, optimizer = made([1.0, -2.0])
    parameter.grad = torch.tensor([3.0, 4.0], dtype=torch.float64)
    tally = Tally()
    tally.add("kl", torch.tensor(0.5))
    assert optimizer.take_step(tally).sums == {"kl": 0.5, "grad_norm": pytest.approx(5.0)}
    assert parameter.tolist() != [1.0, -2.0]


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_a_metric_that_is_not_finite_is_refused_before_a_weight_changes(number):
    parameter, optimizer = made([1.0, -2.0])
    parameter.grad = torch.tensor([3.0, 4.0], dtype=torch.float64)
    tally = Tally()
    tally.add("kl", torch.tensor(number))
    with pytest.raises(FloatingPointError, match="kl"):
        optimizer.take_step(tally)
    assert parameter.tolist() == [1.0, -2.0]
