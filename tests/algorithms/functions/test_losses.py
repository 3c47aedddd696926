"""Losses and their gradients, against plain loops that share no code with them."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from collm.algorithms.functions.losses import (
    KL_ESTIMATORS,
    approximate_kl,
    clipped_policy_loss,
    explained_variance,
    importance_weights,
    kl_k1,
    kl_k2,
    kl_k3,
    policy_gradient_loss,
    token_advantages,
    turn_logprobs,
    value_loss,
)

finite = st.floats(-5, 5, allow_nan=False, width=32)
lengths = st.lists(st.integers(0, 5), min_size=1, max_size=5)
seeds = st.integers(0, 999)


def double(values):
    return torch.tensor(values, dtype=torch.float64)


def draw(seed, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def tokens_of(lengths, seed=0):
    """Log-probabilities of ragged turns and whose they are, the turns' tokens interleaved."""
    turn_of_token = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
    turn_of_token = turn_of_token[torch.randperm(sum(lengths), generator=torch.Generator().manual_seed(seed))]
    return -draw(seed, sum(lengths)).abs(), turn_of_token


def close(actual, expected):
    torch.testing.assert_close(actual, torch.as_tensor(expected, dtype=actual.dtype), rtol=1e-9, atol=1e-9)


def gradient(loss, at):
    return torch.autograd.grad(loss, at, retain_graph=True)[0]


@given(lengths, seeds)
def test_turn_logprobs_equal_a_loop_over_the_tokens(lengths, seed):
    logprobs, turn_of_token = tokens_of(lengths, seed)
    sums = [0.0] * len(lengths)
    for logprob, turn in zip(logprobs.tolist(), turn_of_token.tolist(), strict=True):
        sums[turn] += logprob
    close(turn_logprobs(logprobs, turn_of_token, len(lengths)), sums)
    means = [total / length if length else 0.0 for total, length in zip(sums, lengths, strict=True)]
    close(turn_logprobs(logprobs, turn_of_token, len(lengths), average_over_tokens=True), means)


@given(lengths, seeds)
def test_turn_level_and_token_level_credit_have_one_gradient_when_turns_count(lengths, seed):
    logprobs, turn_of_token = tokens_of(lengths, seed)
    advantages = draw(seed + 1, len(lengths))
    logprobs.requires_grad_()
    turns = policy_gradient_loss(turn_logprobs(logprobs, turn_of_token, len(lengths)), advantages, len(lengths))
    tokens = policy_gradient_loss(logprobs, token_advantages(advantages, turn_of_token), len(lengths))
    expected = [-advantages[turn].item() / len(lengths) for turn in turn_of_token.tolist()]
    close(gradient(turns, logprobs), expected)
    close(gradient(tokens, logprobs), expected)


@given(lengths.filter(any), seeds)
def test_advantages_divided_by_length_average_over_the_tokens_of_a_turn(lengths, seed):
    logprobs, turn_of_token = tokens_of(lengths, seed)
    advantages = draw(seed + 1, len(lengths))
    tokens = policy_gradient_loss(logprobs, token_advantages(advantages, turn_of_token, divide_by_length=True), 3)
    means = turn_logprobs(logprobs, turn_of_token, len(lengths), average_over_tokens=True)
    close(tokens, policy_gradient_loss(means, advantages, 3))


def test_no_gradient_flows_into_advantages_targets_and_reports():
    logprobs, advantages = draw(0, 3).requires_grad_(), draw(1, 3).requires_grad_()
    for loss in (
        policy_gradient_loss(logprobs, advantages, 3),
        clipped_policy_loss(logprobs, logprobs, advantages, 3)[0],
        value_loss(logprobs, advantages, 3),
    ):
        loss.backward()
        assert advantages.grad is None
    logprobs, other = double([-1.0, -2.0]).requires_grad_(), double([-1.5, -2.5])
    assert not approximate_kl(logprobs, other).requires_grad
    assert not explained_variance(logprobs, other).requires_grad


@given(st.lists(st.tuples(finite, finite, finite), min_size=1, max_size=8), st.floats(0.05, 3), st.floats(0.05, 3))
def test_clipped_policy_loss_and_its_gradient_equal_a_loop(items, low, high):
    total, slopes, count = 0.0, [], 0
    for new, old, advantage in items:
        ratio = math.exp(new - old)
        clipped = min(max(ratio, 1 - low), 1 + high)
        total -= min(ratio * advantage, clipped * advantage)
        is_clipped = clipped * advantage < ratio * advantage
        count += is_clipped
        slopes.append(0.0 if is_clipped else -ratio * advantage / 7)
    logprobs, sampled, advantages = double(items).unbind(1)
    logprobs.requires_grad_()
    loss, num_clipped = clipped_policy_loss(logprobs, sampled, advantages, 7, clip_range=low, clip_range_high=high)
    torch.testing.assert_close(loss, double(total / 7), rtol=1e-7, atol=1e-7)
    torch.testing.assert_close(gradient(loss, logprobs), double(slopes), rtol=1e-7, atol=1e-7)
    assert num_clipped == count


@pytest.mark.parametrize("log_ratio", [1000.0, -1000.0])
@pytest.mark.parametrize("size", [0.0, 1.0])
def test_a_ratio_that_overflows_has_no_gradient(log_ratio, size):
    logprobs = double([log_ratio]).requires_grad_()
    advantages = double([math.copysign(size, log_ratio)])
    loss, num_clipped = clipped_policy_loss(logprobs, double([0.0]), advantages, 1)
    assert gradient(loss, logprobs).item() == 0.0 and num_clipped == size


@given(st.lists(st.tuples(finite, finite, finite), min_size=1, max_size=8), st.floats(0.01, 2))
def test_clipped_value_loss_equals_a_loop(items, clip_range):
    total = 0.0
    for value, target, old in items:
        near = min(max(value, old - clip_range), old + clip_range)
        total += max((value - target) ** 2, (near - target) ** 2)
    values, targets, old_values = double(items).unbind(1)
    torch.testing.assert_close(value_loss(values, targets, 3, old_values, clip_range), double(total / 3))


def test_explained_variance_by_hand():
    targets = double([1.0, 2.0, 5.0])
    close(explained_variance(targets, targets), 1)
    close(explained_variance(double([4.0, 4.0, 4.0]), targets), 0)
    close(explained_variance(-targets, targets), -3)
    assert explained_variance(targets, double([2.0, 2.0, 2.0])).isnan()
    values = torch.linspace(-0.3, 0.4, 64)
    targets = (0.1 - values) + values
    assert 0 < targets.var() < 1e-14
    assert explained_variance(values, targets).isnan()
    assert explained_variance(values * 1e6, (1e5 - values * 1e6) + values * 1e6).isnan()
    varied = torch.where(torch.arange(64) < 32, 0.1, 0.1001)
    assert explained_variance(values, varied) < -1e6


def test_kl_estimators_by_hand():
    logprobs, reference = double([math.log(0.5)]), double([math.log(0.25)])
    close(kl_k1(logprobs, reference), [math.log(2)])
    close(kl_k2(logprobs, reference), [math.log(2) ** 2 / 2])
    close(kl_k3(logprobs, reference), [0.5 - 1 + math.log(2)])
    logprobs = double([-1.0, -2.0])
    assert approximate_kl(logprobs, logprobs) == 0
    near, far = approximate_kl(logprobs + 0.1, logprobs), approximate_kl(logprobs - 0.3, logprobs)
    assert 0 < near < far
    close(near, math.exp(0.1) - 1 - 0.1)


@given(seeds)
def test_kl_estimators_average_to_the_divergence(seed):
    logprobs, reference = draw(seed, 5).log_softmax(0), draw(seed + 1, 5).log_softmax(0)
    pi = logprobs.exp()
    divergence = sum(p * math.log(p / q) for p, q in zip(pi.tolist(), reference.exp().tolist(), strict=True))
    for name in ("k1", "k3"):
        assert (pi * KL_ESTIMATORS[name](logprobs, reference)).sum().item() == pytest.approx(divergence, abs=1e-12)
    for name in ("k2", "k3"):
        assert (KL_ESTIMATORS[name](logprobs, reference) >= 0).all()


def test_as_losses_k1_does_nothing_k2_descends_the_divergence_and_k3_the_reverse_one():
    logits, reference = draw(0, 5).requires_grad_(), draw(1, 5).log_softmax(0)
    logprobs = logits.log_softmax(0)
    weights = logprobs.exp().detach()

    def average(estimator):
        return gradient((weights * estimator(logprobs, reference)).sum(), logits)

    forward = gradient((logprobs.exp() * (logprobs - reference)).sum(), logits)
    reverse = gradient((reference.exp() * (reference - logprobs)).sum(), logits)
    close(average(kl_k1), torch.zeros(5))
    close(average(kl_k2), forward)
    close(average(kl_k3), reverse)


def test_importance_weights_by_hand():
    now, then = torch.log(torch.tensor([0.4, 0.1, 0.9])), torch.log(torch.tensor([0.2, 0.2, 0.1]))
    found = importance_weights(now, then, torch.tensor([True, True, True]), 3.0)
    torch.testing.assert_close(found.weights, torch.tensor([2.0, 0.5, 3.0]))
    assert found.num_capped == 1
    on_policy = importance_weights(now, then, torch.tensor([False, False, False]), 0.5)
    assert on_policy.weights.tolist() == [1.0, 1.0, 1.0] and on_policy.num_capped == 0


@given(st.integers(0, 1_000))
def test_weighted_policy_gradients_of_an_older_policy_s_samples_are_the_policy_s_own_in_expectation(seed):
    """By enumeration of all actions, times the probability that the older policy draws them."""
    generator = torch.Generator().manual_seed(seed)
    logits, older, rewards = torch.randn(3, 5, generator=generator, dtype=torch.float64)
    logits.requires_grad_()
    own = (logits.softmax(0) * rewards).sum()
    (expected,) = torch.autograd.grad(own, logits)
    sampler, every = older.log_softmax(0), torch.ones(5).bool()
    weights = importance_weights(logits.log_softmax(0), sampler, every, 1e9).weights
    loss = policy_gradient_loss(logits.log_softmax(0), sampler.exp() * weights * rewards, 1)
    (found,) = torch.autograd.grad(-loss, logits)
    torch.testing.assert_close(found, expected)


ONE, TWO = torch.ones(1), torch.zeros(2, dtype=torch.long)


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: turn_logprobs(torch.zeros(3), TWO, 1), "one entry for each sampled token"),
        *[
            (lambda low=low, high=high: clipped_policy_loss(ONE, ONE, ONE, 1, low, high), "clip_range")
            for low, high in ((0.0, None), (-0.2, None), (0.2, 0.0), (0.0, 0.2))
        ],
        *[(lambda count=count: policy_gradient_loss(ONE, ONE, count), "denominator") for count in (0, -1)],
        (lambda: value_loss(torch.zeros(3), torch.zeros(3, 1), 3), r"\(3, 1\)"),
        (lambda: value_loss(ONE, ONE, 1, clip_range=0.2), "old_values"),
        *[(lambda low=low: value_loss(ONE, ONE, 1, ONE, low), "clip_range") for low in (0.0, -0.5)],
        (lambda: importance_weights(ONE, ONE, ONE.bool(), 0.0), "importance_cap=0"),
    ],
)
def test_arguments_without_a_meaning_are_refused(call, told):
    with pytest.raises(ValueError, match=told):
        call()
