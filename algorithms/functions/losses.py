"""Losses: pure functions of tensors. No models, optimizers, logging or devices.

Axes: N turns; K sampled tokens of these turns, ragged and unpadded, token k belonging to turn `turn_of_token[k]` in
0..N-1; M items, which are turns or tokens:

* credit per turn: `turn_logprobs` first, then a loss over M = N turns with one advantage each;
* credit per token: a loss over M = K tokens with `token_advantages`.

Every loss is a **sum over its items divided by `denominator`**, the count over the whole batch that the caller passes:
the number of all its turns (or tokens), not of the micro-batch's. Contributions of 1 x 8 and 8 x 1 items then add up to
the same number and the same gradient, however ragged the micro-batches. To weight items, scale their advantages.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional


def turn_logprobs(
    logprobs: Tensor, turn_of_token: Tensor, num_turns: int, *, average_over_tokens: bool = False
) -> Tensor:
    """Log-probability of each turn's completion: the sum over its tokens.

        log pi(completion n) = sum over k of turn n of log pi(token k)

    Args:
        logprobs: [K].
        turn_of_token: [K] long, 0..num_turns - 1.
        num_turns: N.
        average_over_tokens: divide by the number of the turn's tokens, as GSPO's ratio does (arXiv:2507.18071). The
            result is no longer a log-probability; a token of a completion of length L gets 1 / L of the gradient.

    Returns:
        [N]; 0 for a turn without tokens, whose probability is 1.

    Raises:
        ValueError: if the shapes disagree.
    """
    _check_tokens(logprobs, turn_of_token)
    sums = logprobs.new_zeros(num_turns).index_add(0, turn_of_token, logprobs)
    if not average_over_tokens:
        return sums
    return sums / torch.bincount(turn_of_token, minlength=num_turns).clamp(min=1)


def token_advantages(advantages: Tensor, turn_of_token: Tensor, *, divide_by_length: bool = False) -> Tensor:
    """Advantage of each token: that of its turn.

    Args:
        advantages: [N].
        turn_of_token: [K] long, 0..N - 1.
        divide_by_length: divide by the number of the turn's tokens, so that each turn weighs the same in the loss.
            False: each token weighs the same, and long completions weigh more.

    Returns:
        [K].
    """
    spread = advantages[turn_of_token]
    if not divide_by_length:
        return spread
    return spread / torch.bincount(turn_of_token, minlength=len(advantages))[turn_of_token]


def policy_gradient_loss(logprobs: Tensor, advantages: Tensor, denominator: float) -> Tensor:
    """Policy gradient loss: its gradient is minus the policy gradient.

        L = - sum over m of A[m] * log pi[m] / denominator

    Source: Williams (1992), REINFORCE.

    Args:
        logprobs: [M], with gradient.
        advantages: [M]; any gradient in them is cut.
        denominator: items of the whole batch.

    Returns:
        A scalar.

    Raises:
        ValueError: if the shapes disagree or the denominator is not positive.
    """
    _check_items(denominator, logprobs=logprobs, advantages=advantages)
    return -(advantages.detach() * logprobs).sum() / denominator


class ImportanceWeights(NamedTuple):
    """Weights of items, and how many of them the cap lowered."""

    weights: Tensor  # [M], without gradient
    num_capped: Tensor  # scalar


@torch.no_grad()
def importance_weights(
    logprobs: Tensor, sampled_logprobs: Tensor, is_off_policy: Tensor, cap: float
) -> ImportanceWeights:
    """Truncated importance weights of items that another policy sampled: an older one, or the same in other arithmetic.

        w = min(pi / pi at sampling, cap) where another policy sampled the item, else 1

    A policy gradient of items from the other policy, each times its untruncated weight, is in expectation that of the
    policy now, for a single decision of a single agent. Not corrected are:

    * the change of the agent's earlier decisions, or with weights per token of the earlier tokens;
    * the change of the partners: the gradient is that against the partners as they were at sampling. A product of the
      weights over the agents of a joint turn would correct it in games of one turn.

    In an enumerated game of one turn, with all weights moved by 0.02, 0.1 and 0.3 standard deviations, the slope of the
    expected gradient to the true one was 0.954, 0.826 and 0.715 (0.964, 0.857 and 0.735 without weights). In one of two
    turns the cosine was 0.994, 0.876 and 0.530. The cap bounds the variance, at the price of a bias towards the other
    policy.

    Source: Ionides (2008), truncated importance sampling; as a weight on policy gradients from other samplers, IMPALA
    (arXiv:1802.01561), equation 1, and IMPACT (arXiv:1912.00167).

    Args:
        logprobs: [M]: of turns for one weight per completion, of tokens for one per token.
        sampled_logprobs: [M], of the same items when they were sampled.
        is_off_policy: [M] bool, where the policy that sampled was not that of now.
        cap: > 0.

    Returns:
        The weights, in 0..max(cap, 1), exactly 1 where the policy of now sampled the item.

    Raises:
        ValueError: if the shapes disagree or the cap is not positive.
    """
    _check_items(1, logprobs=logprobs, sampled_logprobs=sampled_logprobs, is_off_policy=is_off_policy)
    if cap <= 0:
        raise ValueError(
            f"importance_cap is {cap}, but must be positive, or nothing that another policy sampled can be learned from"
        )
    log_ratio = logprobs - sampled_logprobs
    log_cap = math.log(cap)
    weights = torch.where(is_off_policy, log_ratio.clamp(max=log_cap).exp(), 1.0)
    return ImportanceWeights(weights, (is_off_policy & (log_ratio > log_cap)).sum())


class ClippedLoss(NamedTuple):
    """A clipped loss, and how many items the clip left without gradient."""

    loss: Tensor  # scalar
    num_clipped: Tensor  # scalar, items without gradient; divide the sum over micro-batches by the number of items


def clipped_policy_loss(
    logprobs: Tensor,
    sampled_logprobs: Tensor,
    advantages: Tensor,
    denominator: float,
    clip_range: float = 0.2,
    clip_range_high: float | None = None,
) -> ClippedLoss:
    """PPO's clipped surrogate loss.

        rho = pi / pi at sampling;  L = - sum over m of min(rho * A, clip(rho, 1 - low, 1 + high) * A) / denominator

    Source: Schulman et al. (arXiv:1707.06347), equation 7. A high side wider than the low one is DAPO's
    (arXiv:2503.14476).

    Args:
        logprobs: [M], with gradient: of turns for one ratio per completion, of tokens for one per token.
        sampled_logprobs: [M], of the same items when they were sampled.
        advantages: [M]; any gradient in them is cut.
        denominator: items of the whole batch.
        clip_range: how far the ratio may fall below 1 (and rise above it), > 0.
        clip_range_high: how far it may rise above 1; None: clip_range.

    Returns:
        The loss, whose gradient at ratio 1 is `policy_gradient_loss`'s, and the number of clipped items.

    Raises:
        ValueError: if the shapes disagree, or the denominator or a clip range is not positive.
    """
    _check_items(denominator, logprobs=logprobs, sampled_logprobs=sampled_logprobs, advantages=advantages)
    high = clip_range if clip_range_high is None else clip_range_high
    if clip_range <= 0 or high <= 0:
        raise ValueError(f"clip ranges are {clip_range} and {high}, but must be positive, or nothing can be learned")
    advantages = advantages.detach()
    log_ratio = logprobs - sampled_logprobs.detach()
    # The smaller product is the ratio cut above where A >= 0 and below where A < 0. Cutting its logarithm keeps ratios
    # that overflow from turning the gradient they no longer have into nan.
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
    """Squared error of the critic, optionally with PPO's clip around its earlier prediction.

        L = sum over m of (V - target)^2 / denominator
        clipped: the larger of that square and (V_old + clip(V - V_old, -range, range) - target)^2

    There is no factor 1/2: the coefficient can hold it. Source of the clip: OpenAI baselines' ppo2; of doubts about
    it: arXiv:2006.05990, section 3.3.

    Args:
        values: [M], with gradient.
        targets: [M]; any gradient in them is cut.
        denominator: items of the whole batch.
        old_values: [M], predicted when the batch was collected; needed with clip_range.
        clip_range: in the units of the values, > 0; None: no clip.

    Returns:
        A scalar.

    Raises:
        ValueError: if the shapes disagree, the denominator or clip range is not positive, or a clip has no old values.
    """
    _check_items(denominator, values=values, targets=targets)
    targets = targets.detach()
    squares = (values - targets).square()
    if clip_range is not None:
        if old_values is None or clip_range <= 0:
            raise ValueError(f"a value clip of {clip_range} must be positive and needs old_values to clip around")
        _check_items(denominator, values=values, old_values=old_values)
        old_values = old_values.detach()
        near = old_values + (values - old_values).clamp(-clip_range, clip_range)
        squares = torch.maximum(squares, (near - targets).square())
    return squares.sum() / denominator


def entropy_bonus(entropies: Tensor, denominator: float) -> Tensor:
    """Entropy bonus: the policy's entropies at sampled items, summed over [M] / denominator. Subtract it in a loss."""
    _check_items(denominator, entropies=entropies)
    return entropies.sum() / denominator


def preference_loss(better: Tensor, worse: Tensor, denominator: float) -> Tensor:
    """Negative log-likelihood of preferences under the Bradley-Terry model.

        L = - sum over pairs of log sigmoid(score of the better - score of the worse) / denominator

    Source: Bradley and Terry (1952); as a loss for reward models Christiano et al. (arXiv:1706.03741), equation 1.

    Args:
        better: [M] scores, with gradient.
        worse: [M] scores, with gradient.
        denominator: pairs of the whole batch.

    Returns:
        A scalar: log 2 where both scores are equal. A constant added to all scores changes nothing.

    Raises:
        ValueError: if the shapes disagree or the denominator is not positive.
    """
    _check_items(denominator, better=better, worse=worse)
    return -functional.logsigmoid(better - worse).sum() / denominator


def kl_k1(logprobs: Tensor, reference_logprobs: Tensor) -> Tensor:
    """KL(pi || reference) from samples of pi: log pi - log reference. [M] each.

    Unbiased; single items may be negative. Use this estimator for a penalty in the *reward*. In the *loss* it does
    nothing: its gradient is zero on average.
    """
    return logprobs - reference_logprobs


def kl_k2(logprobs: Tensor, reference_logprobs: Tensor) -> Tensor:
    """KL(pi || reference) from samples of pi: (log pi - log reference)^2 / 2. [M] each.

    Biased, never negative; its expected gradient is that of the KL divergence of the token's own distribution. Use this
    estimator in the *loss*, on samples of the current policy. Summed over a sequence, the gradient leaves out the
    effect of a token on the divergence of later tokens: 0.3 % of the gradient in an enumerated game of two turns. A
    penalty in the reward with `kl_k1` contains it.
    """
    return (logprobs - reference_logprobs).square() / 2


def kl_k3(logprobs: Tensor, reference_logprobs: Tensor) -> Tensor:
    """KL(pi || reference) from samples of pi: r - 1 - log r with r = reference / pi. [M] each.

    Unbiased and never negative. Use this estimator to *report*; in the loss its expected gradient is that of
    KL(reference || pi), the other direction. Source of all three: J. Schulman, http://joschu.net/blog/kl-approx.html.
    """
    log_ratio = reference_logprobs - logprobs
    return log_ratio.expm1() - log_ratio


KL_ESTIMATORS: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = MappingProxyType(
    {"k1": kl_k1, "k2": kl_k2, "k3": kl_k3}
)


@torch.no_grad()
def approximate_kl(logprobs: Tensor, sampled_logprobs: Tensor) -> Tensor:
    """KL(policy at sampling || policy now): the mean of k3 over [M] items; a scalar."""
    return kl_k3(sampled_logprobs, logprobs).mean()


@torch.no_grad()
def explained_variance(values: Tensor, targets: Tensor) -> Tensor:
    """Explained variance of the critic's targets: 1 - Var(target - V) / Var(target); [M] each.

    Returns:
        A scalar: 1 perfect, 0 no better than a constant, below 0 worse; nan where the targets do not vary, or by no
        more than rounding: they are computed from values, so that equal ones differ by the rounding of these.
    """
    variance = targets.var(correction=0)
    share = 1 - (targets - values).var(correction=0) / variance
    rounding = 8 * torch.finfo(targets.dtype).eps * torch.maximum(targets.abs().max(), values.abs().max())
    return torch.where(variance > rounding.square(), share, torch.nan)


def _check_tokens(per_token: Tensor, turn_of_token: Tensor) -> None:
    if per_token.dim() != 1 or per_token.shape != turn_of_token.shape:
        raise ValueError(
            f"logprobs {tuple(per_token.shape)} and turn_of_token {tuple(turn_of_token.shape)} must both be [K], "
            "one entry for each sampled token"
        )


def _check_items(denominator: float, **items: Tensor) -> None:
    shapes = {name: tuple(tensor.shape) for name, tensor in items.items()}
    # Broadcasting [M] with [M, 1] would silently make M * M terms.
    if any(len(shape) != 1 for shape in shapes.values()) or len(set(shapes.values())) != 1:
        raise ValueError(f"one-dimensional tensors of one length are needed, but got {shapes}")
    if denominator <= 0:
        raise ValueError(f"denominator is {denominator}, but must be the positive count of items in the whole batch")
