"""Exact expected gradients with importance weights, in a game of one turn whose two agents changed since sampling."""

from __future__ import annotations

import pytest
import torch

from collm.algorithms.functions.losses import importance_weights, policy_gradient_loss

NO_CAP = 1e30
NUM_ACTIONS = 4


def numbers(seed, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


REWARDS = numbers(0, NUM_ACTIONS, NUM_ACTIONS)
OWN, PARTNER = numbers(1, NUM_ACTIONS), numbers(2, NUM_ACTIONS)  # logits of the policies now
ROWS, COLUMNS = (grid.flatten() for grid in torch.meshgrid(*[torch.arange(NUM_ACTIONS)] * 2, indexing="ij"))


def true_gradient(partner=PARTNER):
    """Of the expected reward, in the agent's own logits."""
    own = OWN.clone().requires_grad_()
    return torch.autograd.grad(own.softmax(0) @ REWARDS @ partner.softmax(0), own)[0]


def expected_gradient(sampled_own, sampled_partner, *, has_product=False):
    """Of the weighted policy gradient, over all joint actions of the policies that sampled."""
    own = OWN.clone().requires_grad_()
    logprobs = own.log_softmax(0)[ROWS]
    at_sampling, partner_at_sampling = sampled_own.log_softmax(0)[ROWS], sampled_partner.log_softmax(0)[COLUMNS]
    now = logprobs.detach()
    if has_product:
        now, at_sampling_of_all = now + PARTNER.log_softmax(0)[COLUMNS], at_sampling + partner_at_sampling
    else:
        at_sampling_of_all = at_sampling
    is_off = torch.ones(len(ROWS), dtype=torch.bool)
    weights, _ = importance_weights(now, at_sampling_of_all, is_off, NO_CAP)
    probabilities = (at_sampling + partner_at_sampling).exp()
    loss = policy_gradient_loss(logprobs, weights * REWARDS[ROWS, COLUMNS] * probabilities, 1)
    return -torch.autograd.grad(loss, own)[0]


def relative_error(found):
    return float((found - true_gradient()).norm() / true_gradient().norm())


def moved(logits, seed, deviation):
    return logits + deviation * numbers(seed, NUM_ACTIONS)


def test_the_weight_corrects_an_agent_s_own_change_exactly():
    found = expected_gradient(moved(OWN, 3, 0.5), PARTNER)
    torch.testing.assert_close(found, true_gradient(), rtol=1e-12, atol=1e-12)


def test_the_gradient_is_that_against_the_partner_as_it_was_at_sampling():
    partner = moved(PARTNER, 4, 0.5)
    found = expected_gradient(moved(OWN, 3, 0.5), partner)
    torch.testing.assert_close(found, true_gradient(partner), rtol=1e-12, atol=1e-12)


def test_the_error_grows_with_the_partner_s_change():
    errors = [relative_error(expected_gradient(OWN, moved(PARTNER, 4, deviation))) for deviation in (0.02, 0.1, 0.3)]
    assert errors == pytest.approx([0.025, 0.121, 0.317], rel=0.02)


@pytest.mark.parametrize("deviation", [0.1, 0.5])
def test_a_product_over_the_agents_of_a_joint_turn_would_correct_both(deviation):
    found = expected_gradient(moved(OWN, 3, deviation), moved(PARTNER, 4, deviation), has_product=True)
    torch.testing.assert_close(found, true_gradient(), rtol=1e-12, atol=1e-12)
