"""Credit over time, against plain loops that share no code with it."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from collm.algorithms.functions.advantages import (
    critic_targets,
    estimated_advantages,
    gae,
    lambda_returns,
    monte_carlo_returns,
    n_step_advantages,
    td_errors,
    td_targets,
)

finite = st.floats(-10, 10, allow_nan=False, width=32)
unit = st.floats(0, 1, allow_nan=False)


@st.composite
def tracks(draw):
    """Ragged tracks as lists: (rewards, values) with one value more than rewards, the last one 0 or not."""
    lengths = draw(st.lists(st.integers(0, 6), min_size=1, max_size=4))
    result = []
    for length in lengths:
        rewards = draw(st.lists(finite, min_size=length, max_size=length))
        values = draw(st.lists(finite, min_size=length, max_size=length))
        is_terminal = draw(st.booleans())
        result.append((rewards, [*values, 0.0 if is_terminal else draw(finite)]))
    return result


def grids(tracks, num_turns=None, padding=math.nan):
    """The tensors (rewards, values, is_real) of ragged tracks."""
    num_turns = num_turns or max(1, *(len(rewards) for rewards, _ in tracks))
    rewards = torch.full((len(tracks), num_turns), padding, dtype=torch.float64)
    values = torch.full((len(tracks), num_turns + 1), padding, dtype=torch.float64)
    is_real = torch.zeros(len(tracks), num_turns, dtype=torch.bool)
    for row, (r, v) in enumerate(tracks):
        rewards[row, : len(r)] = torch.tensor(r, dtype=torch.float64)
        values[row, : len(v)] = torch.tensor(v, dtype=torch.float64)
        is_real[row, : len(r)] = True
    return rewards, values, is_real


def padded(rows, like):
    result = torch.zeros_like(like)
    for row, entries in enumerate(rows):
        result[row, : len(entries)] = torch.tensor(entries, dtype=like.dtype)
    return result


def loop_td(rewards, values, discount):
    return [rewards[t] + discount * values[t + 1] - values[t] for t in range(len(rewards))]


def loop_gae(rewards, values, discount, trace):
    deltas = loop_td(rewards, values, discount)
    length = len(rewards)
    return [sum((discount * trace) ** (k - t) * deltas[k] for k in range(t, length)) for t in range(length)]


def loop_n_step(rewards, values, discount, n):
    advantages = []
    for t in range(len(rewards)):
        end = min(t + n, len(rewards))
        target = sum(discount ** (k - t) * rewards[k] for k in range(t, end)) + discount ** (end - t) * values[end]
        advantages.append(target - values[t])
    return advantages


def loop_monte_carlo(rewards, discount, final_value):
    length = len(rewards)
    return [
        sum(discount ** (k - t) * rewards[k] for k in range(t, length)) + discount ** (length - t) * final_value
        for t in range(length)
    ]


def close(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-8)


def test_td_errors_by_hand():
    rewards, values, is_real = grids([([1.0, 2.0], [10.0, 20.0, 30.0]), ([3.0], [5.0, 0.0])])
    close(td_errors(rewards, values, is_real, 0.5), torch.tensor([[1.0, -3.0], [-2.0, 0.0]], dtype=torch.float64))


def test_td_targets_by_hand():
    rewards, values, is_real = grids([([1.0, 2.0], [10.0, 20.0, 30.0]), ([3.0], [5.0, 0.0])])
    close(td_targets(rewards, values, is_real, 0.5), torch.tensor([[11.0, 17.0], [3.0, 0.0]], dtype=torch.float64))


def test_gae_by_hand():
    rewards, values, is_real = grids([([1.0, 2.0], [10.0, 20.0, 30.0])])
    # errors 1 and -3, faded by 0.5 * 0.8
    close(gae(rewards, values, is_real, 0.5, 0.8), torch.tensor([[1.0 - 3.0 * 0.4, -3.0]], dtype=torch.float64))


def test_n_step_advantages_by_hand():
    rewards, values, is_real = grids([([1.0, 2.0, 4.0], [10.0, 20.0, 30.0, 40.0])])
    two_steps = [1 + 0.5 * 2 + 0.25 * 30 - 10, 2 + 0.5 * 4 + 0.25 * 40 - 20, 4 + 0.5 * 40 - 30]
    close(n_step_advantages(rewards, values, is_real, 0.5, 2), torch.tensor([two_steps], dtype=torch.float64))


def test_monte_carlo_returns_by_hand():
    rewards, _, is_real = grids([([1.0, 2.0, 4.0], [0.0] * 4), ([3.0], [0.0] * 2)])
    expected = torch.tensor([[3.0, 4.0, 4.0], [3.0, 0.0, 0.0]], dtype=torch.float64)
    close(monte_carlo_returns(rewards, is_real, 0.5), expected)


@given(tracks(), unit)
def test_td_errors_equal_a_loop(tracks, discount):
    rewards, values, is_real = grids(tracks)
    close(td_errors(rewards, values, is_real, discount), padded([loop_td(r, v, discount) for r, v in tracks], rewards))


@given(tracks(), unit, unit)
def test_gae_equals_a_double_loop(tracks, discount, trace):
    rewards, values, is_real = grids(tracks)
    expected = padded([loop_gae(r, v, discount, trace) for r, v in tracks], rewards)
    close(gae(rewards, values, is_real, discount, trace), expected)


@given(tracks(), unit, st.integers(1, 9))
def test_n_step_advantages_equal_a_loop(tracks, discount, n):
    rewards, values, is_real = grids(tracks)
    expected = padded([loop_n_step(r, v, discount, n) for r, v in tracks], rewards)
    close(n_step_advantages(rewards, values, is_real, discount, n), expected)


@given(tracks(), unit)
def test_monte_carlo_returns_equal_a_loop(tracks, discount):
    rewards, _, is_real = grids(tracks)
    expected = padded([loop_monte_carlo(r, discount, v[-1]) for r, v in tracks], rewards)
    final_values = torch.tensor([v[-1] for _, v in tracks], dtype=torch.float64)
    close(monte_carlo_returns(rewards, is_real, discount, final_values), expected)


@given(tracks(), unit)
def test_gae_without_trace_is_the_td_error(tracks, discount):
    rewards, values, is_real = grids(tracks)
    expected = padded([loop_td(r, v, discount) for r, v in tracks], rewards)
    close(gae(rewards, values, is_real, discount, 0.0), expected)


@given(tracks(), unit)
def test_gae_with_full_trace_is_monte_carlo_above_the_value(tracks, discount):
    rewards, values, is_real = grids(tracks)
    returns = [loop_monte_carlo(r, discount, v[-1]) for r, v in tracks]
    above = [[g - b for g, b in zip(row, v, strict=False)] for row, (_, v) in zip(returns, tracks, strict=True)]
    close(gae(rewards, values, is_real, discount, 1.0), padded(above, rewards))


@given(tracks(), unit)
def test_n_step_advantages_run_from_the_td_error_to_monte_carlo(tracks, discount):
    rewards, values, is_real = grids(tracks)
    close(n_step_advantages(rewards, values, is_real, discount, 1), td_errors(rewards, values, is_real, discount))
    monte_carlo = estimated_advantages(rewards, values, is_real, discount, "monte_carlo")
    for n in (rewards.shape[1], rewards.shape[1] + 3):
        close(n_step_advantages(rewards, values, is_real, discount, n), monte_carlo)


@given(tracks(), unit, unit, st.integers(1, 4), st.sampled_from(["td", "n_step", "gae", "monte_carlo"]))
def test_padding_changes_nothing(tracks, discount, trace, n, estimator):
    """Neither how long it is nor what stands in it."""
    longest = max(len(rewards) for rewards, _ in tracks)
    rewards, values, is_real = grids(tracks, padding=math.nan)
    more = grids(tracks, num_turns=longest + 3, padding=1e9)
    narrow = estimated_advantages(rewards, values, is_real, discount, estimator, trace, n)
    wide = estimated_advantages(*more, discount, estimator, trace, n)
    assert torch.equal(wide[:, : narrow.shape[1]], narrow)
    assert not wide[:, longest:].any()
    for row, (r, v) in enumerate(tracks):
        alone = estimated_advantages(*grids([(r, v)]), discount, estimator, trace, n)
        assert torch.equal(alone[0, : len(r)], narrow[row, : len(r)])


def test_a_truncated_end_bootstraps_and_a_terminal_one_does_not():
    rewards, values, is_real = grids([([1.0], [2.0, 0.0]), ([1.0], [2.0, 10.0])])
    for estimator in ("td", "n_step", "gae", "monte_carlo"):
        advantages = estimated_advantages(rewards, values, is_real, 0.9, estimator)
        close(advantages, torch.tensor([[-1.0], [8.0]], dtype=torch.float64))


@given(tracks(), unit, unit)
def test_a_perfect_critic_leaves_no_advantage(tracks, discount, trace):
    """Where V is the return itself, every estimator finds that each turn went as expected."""
    perfect = [(r, [*loop_monte_carlo(r, discount, v[-1]), v[-1]]) for r, v in tracks]
    rewards, values, is_real = grids(perfect)
    for estimator in ("td", "n_step", "gae", "monte_carlo"):
        advantages = estimated_advantages(rewards, values, is_real, discount, estimator, trace, 3)
        close(advantages, torch.zeros_like(rewards))


@given(tracks(), unit, unit)
def test_lambda_returns_run_from_td_targets_to_monte_carlo_returns(tracks, discount, trace):
    rewards, values, is_real = grids(tracks)
    one_step = [[r[t] + discount * v[t + 1] for t in range(len(r))] for r, v in tracks]
    close(lambda_returns(rewards, values, is_real, discount, 0.0), padded(one_step, rewards))
    close(td_targets(rewards, values, is_real, discount), padded(one_step, rewards))
    full = [loop_monte_carlo(r, discount, v[-1]) for r, v in tracks]
    close(lambda_returns(rewards, values, is_real, discount, 1.0), padded(full, rewards))
    blend = lambda_returns(rewards, values, is_real, discount, trace)
    close(blend, critic_targets(rewards, values, is_real, discount, "gae", trace))


@given(tracks(), unit)
def test_critic_targets_of_n_steps_look_n_turns_ahead(tracks, discount):
    rewards, values, is_real = grids(tracks)
    expected = [[a + b for a, b in zip(loop_n_step(r, v, discount, 2), v, strict=False)] for r, v in tracks]
    close(critic_targets(rewards, values, is_real, discount, "n_step", num_steps=2), padded(expected, rewards))


def test_padding_sends_no_gradient():
    rewards, values, is_real = grids([([1.0, 2.0], [1.0, 1.0, 1.0]), ([1.0], [1.0, 1.0])], padding=0.0)
    values.requires_grad_(True)
    gae(rewards, values, is_real, 0.9, 0.9).sum().backward()
    assert values.grad[1, 2] == 0 and values.grad.isfinite().all()


def test_values_need_one_column_more_than_rewards():
    rewards, values, is_real = grids([([1.0, 2.0], [1.0, 1.0, 1.0])])
    with pytest.raises(ValueError, match=r"one value before each turn and one after the last"):
        td_errors(rewards, values[:, :-1], is_real, 0.9)


def test_padding_before_a_turn_is_refused():
    rewards, values, _ = grids([([1.0, 2.0], [1.0, 1.0, 1.0])])
    with pytest.raises(ValueError, match="behind padding"):
        gae(rewards, values, torch.tensor([[False, True]]), 0.9, 0.9)


def test_a_mask_of_numbers_is_refused():
    rewards, values, is_real = grids([([1.0, 2.0], [1.0, 1.0, 1.0])])
    with pytest.raises(ValueError, match="bool"):
        td_errors(rewards, values, is_real.long(), 0.9)


@pytest.mark.parametrize("discount", [-0.1, 1.1])
def test_a_discount_outside_0_to_1_is_refused(discount):
    rewards, _, is_real = grids([([1.0], [1.0, 1.0])])
    with pytest.raises(ValueError, match="discount"):
        monte_carlo_returns(rewards, is_real, discount)


@pytest.mark.parametrize("trace", [-0.1, 1.1])
def test_a_trace_outside_0_to_1_is_refused(trace):
    with pytest.raises(ValueError, match="trace"):
        gae(*grids([([1.0], [1.0, 1.0])]), 0.9, trace)


def test_an_n_step_advantage_of_no_steps_is_refused():
    with pytest.raises(ValueError, match="at least 1 turn"):
        n_step_advantages(*grids([([1.0], [1.0, 1.0])]), 0.9, 0)


def test_an_unknown_estimator_is_refused_with_the_choices():
    with pytest.raises(ValueError, match="td, n_step, gae, monte_carlo"):
        estimated_advantages(*grids([([1.0], [1.0, 1.0])]), 0.9, "vtrace")


def test_final_values_of_another_number_of_tracks_are_refused():
    rewards, _, is_real = grids([([1.0], [1.0, 1.0])])
    with pytest.raises(ValueError, match="1 tracks"):
        monte_carlo_returns(rewards, is_real, 0.9, torch.zeros(2))


@pytest.mark.parametrize("shape", [(2,), (2, 2, 2)])
def test_rewards_that_are_no_grid_are_refused(shape):
    with pytest.raises(ValueError, match="one grid"):
        monte_carlo_returns(torch.zeros(shape), torch.ones(shape, dtype=torch.bool), 0.9)
