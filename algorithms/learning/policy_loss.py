"""Loss of a policy's micro-batch: the algorithm's loss, entropy bonus, KL penalty, and the loss of a value head.

Axes: N turns and K tokens of the micro-batch. Losses and metrics are sums over micro-batches: they are divided by the
counts of the whole mini-batch.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...agents.batching import sent
from ...agents.core import Evaluation
from ..algorithm import Algorithm, PolicyBatch
from ..config import TrainConfig
from ..functions.losses import KL_ESTIMATORS, entropy_bonus, turn_logprobs, value_loss
from .metrics import Tally


class LossParts(NamedTuple):
    """Tensors that the loss reads besides the evaluation of the policy."""

    advantages: Tensor  # [N]
    targets: Tensor | None  # [N] normalized, for a value head
    old_values: Tensor | None  # [N] normalized, as predicted before the update
    reference_logprobs: Tensor | None  # [K], for a KL penalty
    is_off_policy: Tensor | None  # [N] bool; None: no turn

    def to(self, device: torch.device) -> LossParts:
        advantages, *others = self
        return LossParts(sent(advantages, device), *(None if part is None else sent(part, device) for part in others))

    def at(self, turns: Tensor, tokens: Tensor) -> LossParts:
        """Parts of some turns and their tokens, by index."""
        advantages, targets, old_values, reference_logprobs, is_off_policy = self
        return LossParts(
            advantages[turns],
            None if targets is None else targets[turns],
            None if old_values is None else old_values[turns],
            None if reference_logprobs is None else reference_logprobs[tokens],
            None if is_off_policy is None else is_off_policy[turns],
        )


def policy_loss(
    algorithm: Algorithm[Any],
    evaluation: Evaluation,
    sampled: Tensor,
    parts: LossParts,
    num_turns: int,
    num_tokens: int,
    tally: Tally,
) -> Tensor:
    """Loss of a micro-batch; the sum over the micro-batches is the mini-batch's loss.

    Args:
        algorithm: source of the policy's loss and of the coefficients.
        evaluation: log-probabilities, entropies and values of the present weights.
        sampled: [K] log-probabilities at sampling.
        parts: of the micro-batch.
        num_turns: turns of the whole mini-batch.
        num_tokens: tokens of the whole mini-batch.
        tally: receives the metrics.

    Returns:
        Scalar with gradient.
    """
    config = algorithm.config
    batch = PolicyBatch(
        evaluation.logprobs,
        sampled,
        evaluation.turn_of_token,
        parts.advantages,
        num_turns,
        num_tokens,
        parts.is_off_policy,
    )
    loss, metrics = algorithm.loss(batch)
    for name, share in metrics.items():
        tally.add(name, share)
    tally.add("policy_loss", loss)
    if config.entropy_coef:
        entropies, items = _token_means(config, evaluation.entropies, batch)
        loss = loss - config.entropy_coef * entropy_bonus(entropies, items)
    if parts.reference_logprobs is not None:
        divergence = KL_ESTIMATORS[config.reference_kl_estimator or "k2"](evaluation.logprobs, parts.reference_logprobs)
        tally.add("reference_kl", divergence.sum().double() / num_turns)
        if config.reference_kl_in == "loss":
            items = num_turns
            if config.credit == "token":
                divergence, items = _token_means(config, divergence, batch)
            loss = loss + config.reference_kl_coef * divergence.sum() / items
    if parts.targets is not None and evaluation.values is not None:
        old_values = parts.old_values if config.value_clip_range is not None else None
        error = value_loss(evaluation.values, parts.targets, num_turns, old_values, config.value_clip_range)
        tally.add("value_loss", error)
        loss = loss + config.value_loss_coef * error
    return loss


def counts_turns(config: TrainConfig) -> bool:
    """True if each turn is one item of the policy's loss, False if each token is."""
    return config.credit == "turn" or config.divide_by_length


def _token_means(config: TrainConfig, per_token: Tensor, batch: PolicyBatch) -> tuple[Tensor, int]:
    """Return items and a denominator: the mean per token of the mini-batch is the sum of all items divided by it.

    With a fixed denominator, the items are those of the policy loss: the turns' own means if each turn counts once.
    The mean over all tokens of the mini-batch would then be a ratio of two random numbers.
    """
    if config.loss_denominator == "fixed" and counts_turns(config):
        num_turns = len(batch.advantages)
        return turn_logprobs(per_token, batch.turn_of_token, num_turns, average_over_tokens=True), batch.num_turns
    return per_token, batch.num_tokens
