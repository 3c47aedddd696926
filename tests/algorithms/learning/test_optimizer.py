"""Optimizer steps against their formulas in NumPy; passes of ranks; metrics of passes, summed by hand."""

import copy
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from probes import Dealer
from torch import nn

from collm.agents.batching import default_max_tokens, micro_batches
from collm.algorithms.config import TrainConfig
from collm.algorithms.distribution.group import member
from collm.algorithms.learning import optimizer as optimizers
from collm.algorithms.learning.optimizer import Optimizer, Tally, own_passes, scheduled, tokens_per_pass

CPU = torch.device("cpu")


def made(values, rate=0.1, **settings):
    parameter = nn.Parameter(torch.tensor(values, dtype=torch.float64))
    return parameter, Optimizer([parameter], rate, TrainConfig(**settings))


def step(parameter, optimizer, gradient, **metrics):
    """Take a step with this gradient and these metrics of a pass; returns all metrics."""
    parameter.grad = torch.tensor(gradient, dtype=torch.float64)
    tally = Tally()
    for name, number in metrics.items():
        tally.add(name, torch.tensor(number))
    return optimizer.step(tally)


def test_steps_are_those_of_adamw_with_its_gradient_clipped():
    settings = {"adam": (0.8, 0.9, 0.01), "weight_decay": 0.3, "max_grad_norm": 1.0}
    parameter, optimizer = made([1.0, -2.0], **settings)
    weight, mean, square = np.array([1.0, -2.0]), np.zeros(2), np.zeros(2)
    for number, gradient in enumerate(([3.0, 4.0], [0.3, -0.4], [0.0, 6.0]), start=1):
        norm = np.linalg.norm(gradient)
        metrics = step(parameter, optimizer, gradient, kl=0.5)
        assert metrics == {"kl": 0.5, "grad_norm": pytest.approx(norm)}  # the norm before it is clipped
        clipped = np.array(gradient) / max(1.0, norm)
        weight = weight * (1 - 0.1 * 0.3)
        mean, square = 0.8 * mean + 0.2 * clipped, 0.9 * square + 0.1 * clipped**2
        unbiased = np.sqrt(square / (1 - 0.9**number))
        weight = weight - 0.1 * mean / (1 - 0.8**number) / (unbiased + 0.01)
        np.testing.assert_allclose(parameter.detach().numpy(), weight, rtol=1e-5)


@pytest.mark.parametrize(
    ("gradient", "metrics", "named"),
    [
        ([math.inf, 0.0], {}, r"the gradient's norm is inf; the largest weight is 2; lower the .* \(0.1\)"),
        ([0.0, math.nan], {}, "the gradient's norm is nan"),
        ([3.0, 4.0], {"a": 1.0, "kl": math.nan, "c": math.inf}, "^kl is nan"),
        ([3.0, 4.0], {"kl": -math.inf}, "^kl is -inf"),
    ],
)
def test_the_first_number_that_is_not_finite_is_named_and_no_weight_changes(gradient, metrics, named):
    parameter, optimizer = made([1.0, -2.0])
    with pytest.raises(FloatingPointError, match=named):
        step(parameter, optimizer, gradient, **metrics)
    assert parameter.tolist() == [1.0, -2.0]


def test_a_scaled_gradient_that_overflows_halves_the_scale_and_changes_nothing():
    parameter = nn.Parameter(torch.tensor([1.0, -2.0]))
    optimizer = Optimizer([parameter], 0.1, TrainConfig(), scales_loss=True)
    torch.autograd.backward(optimizer.scaled(parameter.sum() * 0.0))  # which sets the scale up
    optimizer.zero_grad()
    scale = optimizer.scaler.get_scale()
    torch.autograd.backward(optimizer.scaled((parameter * torch.tensor([3e38, 1.0])).sum()))
    assert optimizer.step(Tally()) is None
    assert (optimizer.scaler.get_scale(), parameter.tolist()) == (scale / 2, [1.0, -2.0])
    optimizer.zero_grad()
    torch.autograd.backward(optimizer.scaled((parameter * torch.tensor([3.0, 4.0])).sum()))
    assert optimizer.step(Tally()) == {"grad_norm": pytest.approx(5.0)}  # the scale is divided out again
    assert parameter.tolist() != [1.0, -2.0]
    again = Optimizer([parameter], 0.1, TrainConfig(), scales_loss=True)
    again.load_state_dict(optimizer.state_dict())
    assert again.scaler.get_scale() == scale / 2


@pytest.mark.parametrize(("factor", "num_passes"), [(1e35, 6), (math.nan, 17)])
def test_an_overflowing_gradient_is_computed_again_down_to_the_smallest_scale(factor, num_passes):
    """The first scale is 2^16; 1e35 times 2^11 fits float32."""
    parameter = nn.Parameter(torch.tensor([1.0]))
    optimizer = Optimizer([parameter], 0.1, TrainConfig(), scales_loss=True)
    for number in range(num_passes):
        optimizer.zero_grad()
        torch.autograd.backward(optimizer.scaled(parameter.sum() * factor))
        assert optimizer.scaler.get_scale() == 2.0 ** (16 - number)
        if number < num_passes - 1:
            assert optimizer.step(Tally()) is None
    if math.isnan(factor):
        with pytest.raises(FloatingPointError, match="norm is nan"):
            optimizer.step(Tally())
    else:
        assert optimizer.step(Tally()) == {"grad_norm": pytest.approx(factor)}


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
def test_learning_rates_must_leave_weights_finite(rate):
    with pytest.raises(ValueError, match="learning rate"):
        made([1.0], rate=rate)
    for allowed in (0.0, optimizers.MAX_LEARNING_RATE):
        assert made([1.0], rate=allowed)[1].learning_rate == allowed


@pytest.mark.parametrize("asked", [None, 1, 2047, 2048, 4096])
def test_tokens_of_a_pass_are_the_setting_s_the_device_s_or_those_of_deterministic(asked):
    assert tokens_per_pass(TrainConfig(max_batch_tokens=asked), CPU) == (asked or default_max_tokens(CPU))
    fixed = TrainConfig(max_batch_tokens=asked, deterministic=True)
    if asked is None or asked >= 2048:
        assert tokens_per_pass(fixed, CPU) == 2048
    else:
        with pytest.raises(ValueError, match=f"max_batch_tokens={asked}"):
            tokens_per_pass(fixed, CPU)


@given(st.lists(st.integers(1, 30), min_size=1, max_size=20), st.integers(1, 5), st.integers(1, 60))
def test_every_item_counts_on_one_rank_and_all_ranks_make_equally_many_passes(sizes, num_ranks, limit):
    own = []
    for rank in range(num_ranks):
        with member(Dealer(rank, num_ranks)):
            own.append(own_passes(lambda most: list(micro_batches(sizes, range(len(sizes)), most)), sum(sizes), limit))
    counted = [item for passes in own for each in passes if each.weight for item in each.items]
    assert sorted(counted) == list(range(len(sizes)))
    assert len({len(passes) for passes in own}) == 1


@pytest.mark.parametrize(
    ("num_passes", "rank", "num_ranks", "limits", "own"),
    [
        (1, 0, 1, [100], [([0], 1.0)]),
        (1, 0, 2, [100, 3], [([0], 1.0)]),  # 5 tokens for two ranks, rounded up
        (1, 4, 5, [100, 1], [([0], 0.0)]),  # fewer items than ranks
        (2, 0, 2, [100], [([0], 1.0)]),
        (4, 0, 2, [100], [([0], 1.0), ([2], 1.0)]),
    ],
)
def test_passes_are_cut_again_only_if_there_are_fewer_than_ranks(num_passes, rank, num_ranks, limits, own):
    asked = []

    def cut(limit):
        asked.append(limit)
        return [[item] for item in range(num_passes)]

    with member(Dealer(rank, num_ranks)):
        assert own_passes(cut, 5, 100) == own
    assert asked == limits


def test_a_tally_sums_by_name_with_weights_and_keeps_maxima():
    tally = Tally()
    tally.add("loss", torch.tensor(3.0))
    tally.add_maximum("error", torch.tensor(-4.0))
    tally.add("loss", torch.tensor(-1.0, requires_grad=True), 0.5)
    tally.add_maximum("error", torch.tensor(-8.0))
    tally.add("other", torch.tensor(7.0), 2.0)
    for number in (2.0**24, 1.0, 1.0):  # in 32 bits the sum would be 2**24
        tally.add("tokens", torch.tensor(number))
    assert tally.read() == {"loss": 2.5, "other": 14.0, "tokens": 2.0**24 + 2, "error": -4.0}
    assert Tally().read() == {}
