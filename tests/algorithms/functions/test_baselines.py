"""Baselines of groups, against plain loops that share no code with them."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from collm.algorithms.functions.baselines import (
    EPSILON,
    advantage_limits,
    cross_returns,
    group_max_advantages,
    group_mean_advantages,
    leave_one_out_advantages,
    normalized,
    raw_advantages,
)

RULES = {
    "raw": raw_advantages,
    "mean": group_mean_advantages,
    "leave_one_out": leave_one_out_advantages,
    "max": group_max_advantages,
}
COMPARING = [group_mean_advantages, leave_one_out_advantages, group_max_advantages]

finite = st.floats(-10, 10, allow_nan=False, width=32)


def loop(rule, returns, group, group_size=0):
    advantages = []
    for own, (value, name) in enumerate(zip(returns, group, strict=True)):
        members = [r for r, g in zip(returns, group, strict=True) if g == name]
        absent = [0.0] * (group_size - len(members))
        members += absent
        others = [r for k, (r, g) in enumerate(zip(returns, group, strict=True)) if g == name and k != own] + absent
        baseline = {
            "raw": lambda: 0.0,
            "mean": lambda members=members: sum(members) / len(members),
            "leave_one_out": lambda others=others, value=value: sum(others) / len(others) if others else value,
            "max": lambda members=members: max(members),
        }[rule]()
        advantages.append(value - baseline)
    return advantages


@st.composite
def rollouts(draw):
    """Returns and group names, at least two of each name, shuffled, of unequal group sizes."""
    sizes = draw(st.lists(st.integers(2, 4), min_size=1, max_size=3))
    names = draw(st.permutations([7 * number - 3 for number, size in enumerate(sizes) for _ in range(size)]))
    return draw(st.lists(finite, min_size=len(names), max_size=len(names))), names


def tensors(returns, group):
    return torch.tensor(returns, dtype=torch.float64), torch.tensor(group)


def close(actual, expected):
    torch.testing.assert_close(actual, torch.as_tensor(expected, dtype=actual.dtype), rtol=1e-9, atol=1e-8)


@pytest.mark.parametrize("rule", RULES)
@given(data=rollouts())
def test_the_rules_equal_a_loop(rule, data):
    close(RULES[rule](*tensors(*data)), loop(rule, *data))


@pytest.mark.parametrize("rule", COMPARING)
@pytest.mark.parametrize("divide_by_std", [False, True])
@given(data=rollouts(), shift=finite)
def test_a_constant_added_to_every_reward_of_a_group_changes_no_advantage(rule, divide_by_std, data, shift):
    returns, group = tensors(*data)
    shifted = torch.where(group == group[0], returns + shift, returns)
    before = rule(returns, group, divide_by_std=divide_by_std)
    torch.testing.assert_close(
        rule(shifted, group, divide_by_std=divide_by_std), before, rtol=1e-6, atol=1e-6 if divide_by_std else 1e-9
    )


@pytest.mark.parametrize("rule", COMPARING)
@pytest.mark.parametrize("divide_by_std", [False, True])
@pytest.mark.parametrize("value", [0.1, 1000.1])
def test_equal_returns_give_exactly_no_advantage(rule, divide_by_std, value):
    returns = torch.full((7,), value)
    assert not rule(returns, torch.zeros(7, dtype=torch.long), divide_by_std=divide_by_std).any()


@pytest.mark.parametrize("size", [2, 4, 8])
def test_division_by_the_group_s_std_is_grpo_s(size):
    torch.manual_seed(size)
    returns = torch.randn(3, size, dtype=torch.float64)
    grpo = (returns - returns.mean(1, keepdim=True)) / (returns.std(1, keepdim=True) + EPSILON)
    group = torch.arange(3).repeat_interleave(size)
    close(group_mean_advantages(returns.flatten(), group, divide_by_std=True), grpo.flatten())


@pytest.mark.parametrize("rule", RULES)
def test_a_rollout_that_has_ended_counts_with_a_return_of_0(rule):
    nan = math.nan  # padding, which is never read
    returns = torch.tensor([[6.0, 3.0, 1.0], [4.0, 2.0, nan], [5.0, nan, nan], [9.0, 7.0, nan], [3.0, 1.0, nan]])
    group = torch.tensor([0, 0, 0, 1, 1])
    is_real = ~returns.isnan()
    advantages = RULES[rule](returns, group, is_real)
    for turn in range(3):
        real = is_real[:, turn]
        expected = loop(rule, returns.nan_to_num(0.0)[:, turn].tolist(), group.tolist())
        torch.testing.assert_close(advantages[real, turn], torch.tensor(expected)[real])
    assert not advantages[~is_real].any()


@pytest.mark.parametrize("rule", RULES)
@given(data=rollouts())
def test_a_rollout_without_a_row_counts_with_a_return_of_0(rule, data):
    returns, group = data
    close(RULES[rule](*tensors(returns, group), group_size=5), loop(rule, returns, group, 5))


@pytest.mark.parametrize("rule", RULES)
def test_the_deviation_of_a_group_counts_its_ended_and_absent_rollouts(rule):
    """By hand: returns 6 and 0 of three rollouts, one without a row, mean 2, deviation sqrt((16 + 4 + 4) / 2)."""
    is_real = torch.tensor([[True], [False]])
    returns, group = tensors([[6.0], [math.nan]], [0, 0])
    scaled = RULES[rule](returns, group, is_real, group_size=3, divide_by_std=True)
    deviation = math.sqrt(36 / 3) if rule == "raw" else math.sqrt(12)
    above = {"raw": 6.0, "mean": 4.0, "leave_one_out": 6.0, "max": 0.0}[rule]
    close(scaled, [[above / (deviation + EPSILON)], [0.0]])


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: group_mean_advantages(torch.zeros(3), torch.tensor([4, 4, 4]), group_size=2), "group 4 .*2 rollouts"),
        *[
            (lambda rule=rule: rule(torch.zeros(3), torch.tensor([4, 5, 4])), "group 5 has 1 rollout.*at least 2")
            for rule in COMPARING
        ],
        (lambda: cross_returns(torch.zeros(1, 2, 3)), "an axis per agent"),
        *[
            (
                lambda num=num, real=real: group_mean_advantages(
                    torch.zeros(4), torch.zeros(num).long(), None if real is None else torch.ones(real).bool()
                ),
                "one group for each row",
            )
            for num, real in ((3, None), (5, None), (4, (3,)), (4, (5,)), (4, (4, 2)), (4, ()))
        ],
    ],
)
def test_groups_that_cannot_be_compared_are_refused(call, told):
    with pytest.raises(ValueError, match=told):
        call()


@given(st.integers(1, 3), st.integers(1, 3), st.integers(0, 99))
def test_cross_returns_equal_a_loop_over_joint_actions(num_agents, num_completions, seed):
    joint = torch.randn(2, *[num_completions] * num_agents, generator=torch.Generator().manual_seed(seed))
    credit = cross_returns(joint)
    assert credit.shape == (2, num_agents, num_completions)
    for task in range(2):
        for agent in range(num_agents):
            for completion in range(num_completions):
                indices = torch.cartesian_prod(*[torch.arange(num_completions)] * num_agents).reshape(-1, num_agents)
                values = [joint[task][tuple(i)].item() for i in indices if i[agent] == completion]
                assert credit[task, agent, completion].item() == pytest.approx(sum(values) / len(values), abs=1e-6)


def test_normalized_by_hand():
    advantages = torch.tensor([[1.0, 3.0], [5.0, math.nan]])
    is_real = torch.tensor([[True, True], [True, False]])
    std = math.sqrt(8 / 3)
    torch.testing.assert_close(
        normalized(advantages, is_real), torch.tensor([[-2 / std, 0.0], [2 / std, 0.0]]), rtol=1e-5, atol=1e-5
    )
    assert not normalized(torch.full((2, 2), math.nan), torch.zeros(2, 2, dtype=torch.bool)).any()
    advantages = torch.tensor([-3.0, -1.0, 0.0])
    scaled = normalized(advantages, torch.ones(3, dtype=torch.bool), subtract_mean=False)
    assert (scaled.sign() == advantages.sign()).all()
    assert scaled.square().mean().item() == pytest.approx(1, abs=1e-5)

    advantages, group = torch.tensor([50.0, -30.0, 20.0, -40.0, 45.0, 3.0, 3.0]), torch.tensor([0, 0, 0, 0, 1, 2, 2])
    scaled = normalized(advantages, torch.ones(7, dtype=torch.bool), group)
    rms = math.sqrt((2500 + 900 + 400 + 1600 + 2025 + 9 + 9) / 7)
    torch.testing.assert_close(scaled[4:], torch.tensor([45 / rms, 0.0, 0.0]), rtol=1e-5, atol=0)

    returns, group = tensors([3.0, 3.0, -4.0, 4.0], [0, 0, 1, 1])
    expected = torch.tensor([1.0, 1.0, -1.0, 1.0], dtype=torch.float64)
    torch.testing.assert_close(raw_advantages(returns, group, divide_by_std=True), expected, rtol=1e-5, atol=1e-5)


@given(rollouts())
def test_normalized_groups_are_each_normalized_on_their_own(data):
    advantages, group = tensors(*data)
    is_real = torch.ones_like(group, dtype=torch.bool)
    together = normalized(advantages, is_real, group)
    for name in set(data[1]):
        values = advantages[group == name].tolist()
        mean = sum(values) / len(values)
        std = math.sqrt(sum((v - mean) ** 2 for v in values) / len(values))
        expected = [(v - mean) / (std + 1e-6) for v in values]
        torch.testing.assert_close(
            together[group == name], torch.tensor(expected, dtype=torch.float64), rtol=1e-5, atol=1e-5
        )


@pytest.mark.parametrize(
    ("spread", "advantages", "group", "limits"),
    [
        (0.0, [-1e-3, 1e-3], [0, 0], [0.0, 0.0]),  # equal returns: only errors of the critic
        (1.0, [-1.9, 1.9], [0, 0], [1.0, 1.0]),  # not much worse than the mean return
        (1.0, [-8.0, 8.0], [0, 0], [0.25, 0.25]),
        (1.0, [-1.0, 1.0, -4.0, 4.0], [0, 0, 1, 1], [1.0, 1.0, 0.5, 0.5]),
        (1.0, [0.0, 0.0, 0.0], [0, 0, 1], [1.0, 1.0, 1.0]),  # a perfect critic; a turn played once
        (0.0, [0.0, 0.0], [0, 0], [0.0, 0.0]),
    ],
)
def test_advantages_are_limited_by_the_returns_by_hand_in_any_unit(spread, advantages, group, limits):
    for unit in (1e-6, 1.0, 1e6):
        found = advantage_limits(unit * torch.tensor(advantages), torch.tensor(group), unit * spread)
        assert found.tolist() == pytest.approx(limits)


@pytest.mark.parametrize(
    ("advantages", "real", "group"),
    [
        *[((2, 3), (2, 3), (2,)), ((2,), (2, 3), (2, 3)), ((1, 3), (2, 3), (2, 3)), ((3, 3), (2, 3), (2, 3))],
        *[((2, 3), (1, 3), (2, 3)), ((2, 3), (1, 3), (1, 3)), ((2, 3), (2, 3), (3, 3)), ((2, 3), (2, 3), (2, 4))],
    ],
)
def test_normalized_refuses_what_is_not_of_one_shape(advantages, real, group):
    with pytest.raises(ValueError, match="one shape"):
        normalized(torch.zeros(advantages), torch.ones(real, dtype=torch.bool), torch.zeros(group, dtype=torch.long))
