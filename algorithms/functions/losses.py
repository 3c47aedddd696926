"""Losses: pure functions of tensors.

Axes: N turns; K sampled tokens of these turns, concatenated without padding; M items, which are turns or tokens. Token
k belongs to turn `turn_of_token[k]` in 0..N - 1. With credit per turn, `turn_logprobs` gives M = N log-probabilities.
With credit per token, `token_advantages` gives M = K advantages.

Every loss is a **sum over its items divided by `denominator`**, the number of items in the whole batch. The losses of
micro-batches of any size then add up to the loss of the batch. To weight items, scale the advantages. All functions
raise `ValueError` if shapes disagree or the denominator is not positive. Advantages and targets get no gradient.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

import torch
from torch import Tensor


def turn_logprobs(
    logprobs: Tensor, turn_of_token: Tensor, num_turns: int, *, average_over_tokens: bool = False
) -> Tensor:
    """Compute the log-probability [N] of each turn's completion: the sum over its tokens, 0 for a turn without tokens.

        log pi(completion n) = sum over k of turn n of log pi(token k)

    `logprobs` and `turn_of_token` (0..N - 1) are [K]. `average_over_tokens` divides by the turn's number of tokens, as
    GSPO's ratio does (arXiv:2507.18071). The result is then no log-probability.
    """
    if logprobs.dim() != 1 or logprobs.shape != turn_of_token.shape:
        raise ValueError(
            f"logprobs {tuple(logprobs.shape)} and turn_of_token {tuple(turn_of_token.shape)} must both have one "
            "dimension, with one entry for each sampled token"
        )
    sums = logprobs.new_zeros(num_turns).index_add(0, turn_of_token, logprobs)
    if not average_over_tokens:
        return sums
    return sums / torch.bincount(turn_of_token, minlength=num_turns).clamp(min=1)


def token_advantages(advantages: Tensor, turn_of_token: Tensor, *, divide_by_length: bool = False) -> Tensor:
    """Copy the advantage [N] of each turn to the turn's tokens; returns [K] advantages.

    `turn_of_token` is [K] long, 0..N - 1. With `divide_by_length`, the advantage is divided by the turn's number of
    tokens, so that each turn has the same weight in the loss. Without it, each token has the same weight.
    """
    per_token = advantages[turn_of_token]
    if not divide_by_length:
        return per_token
    return per_token / torch.bincount(turn_of_token, minlength=len(advantages))[turn_of_token]


def policy_gradient_loss(logprobs: Tensor, advantages: Tensor, denominator: float) -> Tensor:
    """Compute the policy-gradient loss (a scalar), whose negative gradient is the policy gradient.

        L = - sum over m of A[m] * log pi[m] / denominator

    `logprobs` and `advantages` are [M], `denominator` is the number of items (turns or tokens) of the whole batch.
    Source: Williams (1992), REINFORCE.
    """
    _check_items(denominator, logprobs=logprobs, advantages=advantages)
    return -(advantages.detach() * logprobs).sum() / denominator


class ImportanceWeights(NamedTuple):
    """Truncated importance weights of turns or tokens, and the number of weights that the cap lowered."""

    weights: Tensor  # [M], without gradient
    num_capped: Tensor  # scalar


@torch.no_grad()
def importance_weights(
    logprobs: Tensor, sampled_logprobs: Tensor, is_off_policy: Tensor, cap: float
) -> ImportanceWeights:
    """Compute truncated importance weights of items (turns or tokens) that older weights or a server sampled.

        w = min(pi / pi at sampling, cap) for off-policy items, else 1

    For a single decision of a single agent, untruncated weights make the expected policy gradient equal to the
    on-policy gradient. The weights do not correct for changes of other agents, earlier turns or earlier tokens
    (measured in docs/scale.md). The cap (> 0) limits the variance, but adds bias. All tensors are [M]. Source: Ionides
    (2008); for policy gradients, IMPALA (arXiv:1802.01561), equation 1, and IMPACT (arXiv:1912.00167).
    """
    _check_items(1, logprobs=logprobs, sampled_logprobs=sampled_logprobs, is_off_policy=is_off_policy)
    if cap <= 0:
        raise ValueError(f"importance_cap={cap} must be positive; use None to learn without importance weights")
    log_ratio = logprobs - sampled_logprobs
    log_cap = math.log(cap)
    weights = torch.where(is_off_policy, log_ratio.clamp(max=log_cap).exp(), 1.0)
    return ImportanceWeights(weights, (is_off_policy & (log_ratio > log_cap)).sum())


class ClippedLoss(NamedTuple):
    """PPO's clipped loss, and the number of items whose gradient is 0 because of the clip."""

    loss: Tensor  # scalar
    num_clipped: Tensor  # scalar


def clipped_policy_loss(
    logprobs: Tensor,
    sampled_logprobs: Tensor,
    advantages: Tensor,
    denominator: float,
    clip_range: float = 0.2,
    clip_range_high: float | None = None,
) -> ClippedLoss:
    """Compute PPO's clipped surrogate loss.

        rho = pi / pi at sampling;  L = - sum over m of min(rho * A, clip(rho, 1 - low, 1 + high) * A) / denominator

    All tensors are [M]: one ratio rho per completion, or one per token. `low` is `clip_range` and `high` is
    `clip_range_high`, both > 0. If `clip_range_high` is None, `high` is also `clip_range`. `denominator` is the number
    of items of the whole batch. At ratio 1, the gradient is that of `policy_gradient_loss`.

    Source: Schulman et al. (arXiv:1707.06347), equation 7. The separate upper range is from DAPO (arXiv:2503.14476).
    """
    _check_items(denominator, logprobs=logprobs, sampled_logprobs=sampled_logprobs, advantages=advantages)
    high = clip_range if clip_range_high is None else clip_range_high
    if clip_range <= 0 or high <= 0:
        raise ValueError(f"clip_range={clip_range} and clip_range_high={high} must be positive")
    advantages = advantages.detach()
    log_ratio = logprobs - sampled_logprobs.detach()
    # The minimum clips the ratio from above if A >= 0, and from below if A < 0. The logarithm is clipped instead of the
    # ratio, because the gradient of an overflowing ratio would be nan instead of 0.
    lowest = math.log1p(-clip_range) if clip_range < 1 else -math.inf
    bounded = torch.where(advantages >= 0, log_ratio.clamp(max=math.log1p(high)), log_ratio.clamp(min=lowest))
    num_clipped = ((bounded != log_ratio) & (advantages != 0)).sum()
    return ClippedLoss(-(bounded.exp() * advantages).sum() / denominator, num_clipped)


def value_loss(
    values: Tensor,
    targets: Tensor,
    denominator: float,
    old_values: Tensor | None = None,
    clip_range: float | None = None,
) -> Tensor:
    """Compute the critic's squared error (a scalar), optionally with PPO's clip around the old values.

        L = sum over m of (V - target)^2 / denominator
        clipped: the maximum of (V - target)^2 and (V_old + clip(V - V_old, -range, range) - target)^2

    There is no factor 1/2. All tensors are [M]. `denominator` is the number of items of the whole batch. `old_values`
    are the values before the update. `clip_range` is the largest change of a value, > 0, in the values' units. Source
    of the clip: ppo2 of OpenAI baselines; criticism: arXiv:2006.05990, section 3.3.
    """
    _check_items(denominator, values=values, targets=targets)
    targets = targets.detach()
    squares = (values - targets).square()
    if clip_range is not None:
        if old_values is None or clip_range <= 0:
            raise ValueError(f"clip_range={clip_range} of value_loss must be positive and needs old_values")
        _check_items(denominator, values=values, old_values=old_values)
        old_values = old_values.detach()
        near = old_values + (values - old_values).clamp(-clip_range, clip_range)
        squares = torch.maximum(squares, (near - targets).square())
    return squares.sum() / denominator


def entropy_bonus(entropies: Tensor, denominator: float) -> Tensor:
    """Return the sum of the policy's entropies [M] divided by `denominator`. Subtract the result from a loss."""
    _check_items(denominator, entropies=entropies)
    return entropies.sum() / denominator


def kl_k1(logprobs: Tensor, reference_logprobs: Tensor) -> Tensor:
    """Estimate KL(pi || reference) from samples of pi: log pi - log reference. All shapes are [M].

    Unbiased; single estimates may be negative. Use this estimator for a penalty in the *reward*. In the *loss*, the
    expected gradient of this estimator is 0, so it has no effect.
    """
    return logprobs - reference_logprobs


def kl_k2(logprobs: Tensor, reference_logprobs: Tensor) -> Tensor:
    """Estimate KL(pi || reference) from samples of pi: (log pi - log reference)^2 / 2. All shapes are [M].

    Biased, never negative. Use this estimator in the *loss*, on samples of the current policy: its expected gradient is
    the gradient of each token's KL divergence. The gradient omits the effect of a token on the divergence of later
    tokens: 0.3 % of the gradient in an enumerated game. A penalty in the reward with `kl_k1` includes this effect.
    """
    return (logprobs - reference_logprobs).square() / 2


def kl_k3(logprobs: Tensor, reference_logprobs: Tensor) -> Tensor:
    """Estimate KL(pi || reference) from samples of pi: r - 1 - log r with r = reference / pi. All shapes are [M].

    Unbiased and never negative. Use this estimator for *metrics*. In the loss, its expected gradient is the gradient of
    KL(reference || pi), the reverse direction. Source: J. Schulman, http://joschu.net/blog/kl-approx.html.
    """
    log_ratio = reference_logprobs - logprobs
    return log_ratio.expm1() - log_ratio


KL_ESTIMATORS: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = MappingProxyType(
    {"k1": kl_k1, "k2": kl_k2, "k3": kl_k3}
)


@torch.no_grad()
def approximate_kl(logprobs: Tensor, sampled_logprobs: Tensor) -> Tensor:
    """Estimate KL(policy at sampling || present policy) of [M] items: a scalar, the mean of `kl_k3`."""
    return kl_k3(sampled_logprobs, logprobs).mean()


@torch.no_grad()
def explained_variance(values: Tensor, targets: Tensor) -> Tensor:
    """Compute the explained variance of the critic's targets: 1 - Var(target - V) / Var(target); a scalar.

    1 for perfect values, 0 for constant values, below 0 for worse values. nan if all targets are equal up to rounding:
    targets are computed from values, and so contain the rounding of the values.
    """
    variance = targets.var(correction=0)
    share = 1 - (targets - values).var(correction=0) / variance
    rounding = 8 * torch.finfo(targets.dtype).eps * torch.maximum(targets.abs().max(), values.abs().max())
    return torch.where(variance > rounding.square(), share, torch.nan)


def _check_items(denominator: float, **items: Tensor) -> None:
    shapes = {name: tuple(tensor.shape) for name, tensor in items.items()}
    # Broadcasting [M] with [M, 1] would give M * M terms.
    if any(len(shape) != 1 for shape in shapes.values()) or len(set(shapes.values())) != 1:
        raise ValueError(f"tensors of a loss must be one-dimensional and equally long, but the shapes are {shapes}")
    if denominator <= 0:
        raise ValueError(f"denominator={denominator} must be positive: the number of items in the whole batch")
