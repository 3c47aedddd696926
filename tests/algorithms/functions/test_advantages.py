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
    monte_carlo_returns,
    n_step_advantages,
    td_errors,
)

ESTIMATORS = ("td", "n_step", "gae", "monte_carlo")
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


@given(tracks(), unit, unit, st.integers(1, 9))
def test_estimates_equal_a_loop(tracks, discount, trace, n):
    grid = grids(tracks)
    for found, loop in (
        (td_errors(*grid, discount), lambda r, v: loop_td(r, v, discount)),
        (gae(*grid, discount, 0.0), lambda r, v: loop_td(r, v, discount)),
        (gae(*grid, discount, trace), lambda r, v: loop_gae(r, v, discount, trace)),
        (gae(*grid, discount, 1.0), lambda r, v: loop_n_step(r, v, discount, len(r))),
        (n_step_advantages(*grid, discount, n), lambda r, v: loop_n_step(r, v, discount, n)),
        (estimated_advantages(*grid, discount, "td"), lambda r, v: loop_td(r, v, discount)),
        (estimated_advantages(*grid, discount, "gae", trace), lambda r, v: loop_gae(r, v, discount, trace)),
        (estimated_advantages(*grid, discount, "n_step", 0.0, n), lambda r, v: loop_n_step(r, v, discount, n)),
        (estimated_advantages(*grid, discount, "monte_carlo"), lambda r, v: loop_n_step(r, v, discount, len(r))),
    ):
        close(found, padded([loop(*track) for track in tracks], grid[0]))

    rewards, _, is_real = grid
    expected = padded([loop_monte_carlo(r, discount, v[-1]) for r, v in tracks], rewards)
    final_values = torch.tensor([v[-1] for _, v in tracks], dtype=torch.float64)
    close(monte_carlo_returns(rewards, is_real, discount, final_values), expected)


@given(tracks(), unit, unit, st.integers(1, 4), st.sampled_from(ESTIMATORS))
def test_padding_changes_nothing(tracks, discount, trace, n, estimator):
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


@given(tracks(), unit, unit, st.sampled_from(ESTIMATORS))
def test_critic_targets_are_advantages_above_the_values(tracks, discount, trace, estimator):
    rewards, values, is_real = grids(tracks)
    advantages = estimated_advantages(rewards, values, is_real, discount, estimator, trace, 2)
    expected = torch.where(is_real, advantages + values[:, :-1], 0.0)
    close(critic_targets(rewards, values, is_real, discount, estimator, trace, 2), expected)


def test_padding_sends_no_gradient():
    rewards, values, is_real = grids([([1.0, 2.0], [1.0, 1.0, 1.0]), ([1.0], [1.0, 1.0])], padding=0.0)
    values.requires_grad_(True)
    gae(rewards, values, is_real, 0.9, 0.9).sum().backward()
    assert values.grad[1, 2] == 0 and values.grad.isfinite().all()


GRID = grids([([1.0, 2.0], [1.0, 1.0, 1.0])])
REWARDS, VALUES, IS_REAL = GRID


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: td_errors(REWARDS, VALUES[:, :-1], IS_REAL, 0.9), "one value before each turn and one after the last"),
        (lambda: gae(REWARDS, VALUES, torch.tensor([[False, True]]), 0.9, 0.9), "after padding"),
        (lambda: td_errors(REWARDS, VALUES, IS_REAL.long(), 0.9), "bool"),
        *[(lambda each=each: monte_carlo_returns(REWARDS, IS_REAL, each), "discount") for each in (-0.1, 1.1)],
        *[(lambda each=each: gae(*GRID, 0.9, each), "trace") for each in (-0.1, 1.1)],
        (lambda: n_step_advantages(*GRID, 0.9, 0), "num_steps=0"),
        (lambda: estimated_advantages(*GRID, 0.9, "vtrace"), "vtrace"),
        (lambda: monte_carlo_returns(REWARDS, IS_REAL, 0.9, torch.zeros(2)), "1 tracks"),
        *[
            (lambda shape=shape: monte_carlo_returns(torch.zeros(shape), torch.ones(shape).bool(), 0.9), "rewards")
            for shape in ((2,), (2, 2, 2))
        ],
    ],
)
def test_grids_and_settings_without_a_meaning_are_refused(call, told):
    with pytest.raises(ValueError, match=told):
        call()
