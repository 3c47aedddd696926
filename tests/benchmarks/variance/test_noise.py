"""Noise of advantages and of gradients, by hand and by definition."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from collm.benchmarks.variance.noise import (
    GradientSums,
    effect_correlation,
    gradient_noise,
    jackknife_error,
    left_out,
    relative_variance,
    traced,
)


def test_advantages_by_hand():
    """Two turns, paid 1 at the end: errors 0.6 - 0.5 and 1 - 0.6 for one agent."""
    rewards = np.array([[0.0, 1.0]])
    values = np.array([[[0.5, 0.6]], [[0.0, 0.0]]])
    assert traced(rewards, values, 0.0) == pytest.approx(np.array([[[0.1, 0.4]], [[0.0, 1.0]]]))
    assert traced(rewards, values, 0.5) == pytest.approx(np.array([[[0.3, 0.4]], [[0.5, 1.0]]]))
    assert traced(rewards, values, 1.0) == pytest.approx(np.array([[[0.5, 0.4]], [[1.0, 1.0]]]))


def test_returns_without_a_baseline_have_the_variance_of_returns():
    returns = np.array([0.0, 1.0, 1.0, 0.0, 1.0])
    rewards = np.stack([np.zeros(5), returns], axis=1)
    advantages = traced(rewards, np.zeros((2, 5, 2)), 1.0)
    assert relative_variance(advantages, returns) == pytest.approx(1.0)
    assert relative_variance(advantages / 2, returns) == pytest.approx(0.25)
    assert np.isnan(relative_variance(advantages, np.ones(5)))


def test_the_noise_of_branches_does_not_thin_the_correlation():
    """True effects and an advantage of known correlation; the effects are seen through noise as large as themselves."""
    rng = np.random.default_rng(0)
    true = rng.normal(size=(40_000, 1))
    advantages = (true + rng.normal(size=true.shape))[None]
    effects = true + rng.normal(size=(2, *true.shape))
    plain = np.corrcoef(advantages[0, :, 0], effects.mean(axis=0)[:, 0])[0, 1]
    assert plain == pytest.approx(1 / np.sqrt(2 * 1.5), abs=0.01), "what dividing by the observed spread would say"
    assert effect_correlation(advantages, effects) == pytest.approx(1 / np.sqrt(2), abs=0.01)
    assert np.isnan(effect_correlation(advantages, np.zeros_like(effects)))


def test_the_error_of_a_mean_is_its_standard_error_however_uneven_the_groups():
    """Of groups of one episode, the textbook's; a group of several counts as one."""
    values = np.array([0.2, 1.0, 0.5, 0.9])
    found = left_out(lambda kept: float(values[kept].mean()), [7, 3, 5, 4])
    assert found == pytest.approx([(values.sum() - value) / 3 for value in values])
    assert jackknife_error(found) == pytest.approx(values.std(ddof=1) / 2)
    assert left_out(lambda kept: float(values[kept].mean()), [0, 1, 0, 1]) == pytest.approx([0.95, 0.35])


def test_gradient_sums_are_the_mean_and_the_variance_of_whole_gradients():
    """Against every episode's gradient written out, in two policies."""
    rng = np.random.default_rng(1)
    num_episodes, num_turns, kinds = 40, 3, 4
    advantages = rng.normal(size=(num_episodes, kinds, num_turns))
    gradients = [torch.tensor(rng.normal(0.3, 1, size=(num_episodes, num_turns, width))) for width in (5, 2)]
    sums = [GradientSums.empty(kinds, width) for width in (5, 2)]
    for each in sums:
        each.halves = each.halves.double()
    for number in range(num_episodes):
        for each, own in zip(sums, gradients, strict=True):
            each.add(number, advantages[number], own[number])
    whole = np.concatenate([np.einsum("nvt,ntw->nvw", advantages, own.numpy()) for own in gradients], axis=2)
    noise = gradient_noise(sums, (2, 3))
    assert noise.variances == pytest.approx(whole.var(axis=0, ddof=1).sum(axis=1))
    even, odd = whole[::2].mean(axis=0), whole[1::2].mean(axis=0)
    true = (even[2] @ odd[3] + even[3] @ odd[2]) / 2
    truth = [(half[2] + half[3]) / 2 for half in (even, odd)]
    along = np.array([(even[v] @ truth[1] + odd[v] @ truth[0]) / 2 for v in range(kinds)])
    expected = np.square(along) / true if true > 0 else np.full(kinds, np.nan)
    assert noise.signals == pytest.approx(expected, nan_ok=True)


def test_samples_are_those_at_which_the_mean_gradient_stands_out():
    """A gradient of mean m and variance s in each of w weights: w s / (w m^2) episodes, of any kind of any scale."""
    rng = np.random.default_rng(2)
    sums = GradientSums.empty(3, 4)
    sums.halves = sums.halves.double()
    for number in range(20_000):
        own = torch.tensor(rng.normal(0.5, 2.0, size=(1, 4)))
        sums.add(number, np.array([[1.0], [3.0], [1.0]]), own)
    noise = gradient_noise([sums], (0, 2))
    assert noise.samples == pytest.approx([16.0, 16.0, 16.0], rel=0.1)
    assert noise.variances == pytest.approx([16.0, 144.0, 16.0], rel=0.05)
