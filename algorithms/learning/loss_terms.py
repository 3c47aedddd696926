"""Optional terms of a policy's loss (entropy bonus, KL penalty, value loss), and the KL penalty in the reward.

Axes: N turns and K tokens of a micro-batch. Each term is divided by a count over the whole mini-batch, so the terms of
its micro-batches sum to the mini-batch's term.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ...agents.core import Evaluation
from ..algorithm import Algorithm, PolicyBatch
from ..config import TrainConfig
from ..functions.losses import KL_ESTIMATORS, entropy_bonus, turn_logprobs, value_loss
from ..rollout.episode import Episode
from .optimizer import Tally


def with_optional_terms(
    loss: Tensor,
    algorithm: Algorithm[Any],
    evaluation: Evaluation,
    batch: PolicyBatch,
    inputs: Mapping[str, Tensor],
    tally: Tally,
) -> Tensor:
    """Add the terms that the settings enable to a micro-batch's loss: entropy bonus, KL penalty and value loss.

    `inputs` contains "reference_logprobs" [K] for a KL penalty. For a value head it contains "targets" [N], and
    "old_values" [N] from before the update, both normalized. `tally` receives the metrics.
    """
    config = algorithm.config
    if config.entropy_coef:
        entropies, items = _token_means(config, evaluation.entropies, batch)
        loss = loss - config.entropy_coef * entropy_bonus(entropies, items)
    if "reference_logprobs" in inputs:
        estimate = KL_ESTIMATORS[config.reference_kl_estimator or "k2"]
        divergence = estimate(evaluation.logprobs, inputs["reference_logprobs"])
        tally.add("reference_kl", divergence.sum().double() / batch.num_turns)
        if config.reference_kl_in == "loss":
            items = batch.num_turns
            if config.credit == "token":
                divergence, items = _token_means(config, divergence, batch)
            loss = loss + config.reference_kl_coef * divergence.sum() / items
    if "targets" in inputs and evaluation.values is not None:
        clip_range = config.value_clip_range
        old_values = None if clip_range is None else inputs.get("old_values")
        error = value_loss(evaluation.values, inputs["targets"], batch.num_turns, old_values, clip_range)
        tally.add("value_loss", error)
        loss = loss + config.value_loss_coef * error
    return loss


def counts_turns(config: TrainConfig) -> bool:
    """Return True if the items of the policy's loss are turns, False if they are tokens."""
    return config.credit == "turn" or config.divide_by_length


def _token_means(config: TrainConfig, per_token: Tensor, batch: PolicyBatch) -> tuple[Tensor, int]:
    """Return the numbers to sum and the divisor, for a mean of `per_token` over a mini-batch."""
    # With a random number of tokens, the mean over all tokens is biased: a ratio of two random numbers.
    if config.loss_denominator == "fixed" and counts_turns(config):
        num_turns = len(batch.advantages)
        return turn_logprobs(per_token, batch.turn_of_token, num_turns, average_over_tokens=True), batch.num_turns
    return per_token, batch.num_tokens


def with_penalties(
    episodes: Sequence[Episode],
    references: Mapping[str, Sequence[Tensor]],
    config: TrainConfig,
    *,
    sums_over_team: bool = False,
) -> list[Episode]:
    """Return new episodes in which a KL penalty is subtracted from each turn's reward.

        r' = r - coefficient * sum over the completion's tokens of KL(pi || reference)

    `references` are log-probabilities of the sampled tokens under each agent's reference policy, one tensor per track.
    `sums_over_team` multiplies the penalty by the number of agents, for a joint critic that learns the mean reward.
    """
    estimate = KL_ESTIMATORS[config.reference_kl_estimator or "k1"]
    pieces = {agent: iter(of_tracks) for agent, of_tracks in references.items()}
    penalized = []
    for episode in episodes:
        tracks = dict(episode.tracks)
        factor = config.reference_kl_coef * ((episode.num_agents or len(tracks)) if sums_over_team else 1)
        for agent, track in episode.tracks.items():
            if agent not in pieces:
                continue
            sampled = [torch.from_numpy(turn.completion.logprobs) for turn in track]
            anchors = torch.split(next(pieces[agent]).cpu(), [len(own) for own in sampled])
            prices = [float(estimate(own, anchor).sum()) for own, anchor in zip(sampled, anchors, strict=True)]
            tracks[agent] = tuple(
                replace(turn, reward=turn.reward - factor * price) for turn, price in zip(track, prices, strict=True)
            )
        penalized.append(replace(episode, tracks=tracks))
    return penalized
