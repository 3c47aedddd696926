"""PolicyLearner: advantages → gradient steps of one policy, for all agents that share it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...agents.batching import sent
from ...agents.core import Completion, Evaluation, TrainablePolicy
from ..algorithm import Algorithm, PolicyBatch
from ..distribution.group import current
from ..functions.losses import (
    KL_ESTIMATORS,
    approximate_kl,
    entropy_bonus,
    turn_logprobs,
    value_loss,
)
from .finiteness import Tally, numbers_of
from .optimizer import Descent, Optimizer
from .passes import Pass, dealt, tokens_per_pass

MEASURED_EVERY = 8
"""Step between the tracks on which the policy is evaluated again after an update."""


@dataclass(frozen=True, slots=True)
class TurnBatch:
    """Turns that one policy learns from. Axes: N turns of all tracks in a row, K tokens of all turns in a row."""

    tracks: Sequence[Sequence[Completion]]
    advantages: Tensor  # [N]
    targets: Tensor | None = None  # [N] normalized, for a value head on the policy
    old_values: Tensor | None = None  # [N] normalized, as predicted before the update
    reference_logprobs: Tensor | None = None  # [K], for a KL penalty in the loss
    max_turns: int | None = None  # largest N possible, for a fixed denominator of the loss; None: N
    version: int = 0  # of the weights that learn: the number of updates behind them


class PolicyLearner:
    """Trains one policy; owns its optimizer.

    Args:
        policy: the policy that learns.
        algorithm: source of the loss, the epochs and the learning-rate schedule.
        generator: source of the order of mini-batches.
        learning_rate: peak learning rate. None: `agent_learning_rate`, else the policy's own default.
    """

    def __init__(
        self,
        policy: TrainablePolicy,
        algorithm: Algorithm[Any],
        generator: torch.Generator,
        learning_rate: float | None = None,
    ):
        self.policy = policy
        self.algorithm = algorithm
        self.config = config = algorithm.config
        self.generator = generator
        rate = next(
            rate
            for rate in (learning_rate, config.agent_learning_rate, policy.default_learning_rate)
            if rate is not None
        )
        scales_loss = policy.compute_dtype == torch.float16
        current().share_out(policy, shards=config.fsdp)
        self.optimizer = Optimizer(policy.parameters(), rate, config, scales_loss=scales_loss)
        device = policy.parameters()[0].device
        self.device = device
        self.max_tokens = tokens_per_pass(config, device)
        self._is_fixed: bool = config.loss_denominator == "fixed"
        self._is_per_turn: bool = config.credit == "turn" or config.divide_by_length  # each turn is one item of a loss

    @torch.no_grad()
    def logprobs(self, policy: TrainablePolicy, tracks: Sequence[Sequence[Completion]]) -> list[Tensor]:
        """Log-probabilities of the sampled tokens under a policy (the learner's or its reference), by track."""
        found: dict[int, Tensor] = {}
        for batch, _ in self._passes(policy, tracks, range(len(tracks))):
            evaluation = policy.evaluate([tracks[i] for i in batch])
            lengths = [sum(len(turn.logprobs) for turn in tracks[i]) for i in batch]
            found |= dict(zip(batch, torch.split(evaluation.logprobs, lengths), strict=True))
        found = current().union(found)
        return [found[i] for i in range(len(tracks))]

    @torch.no_grad()
    def scored(self, tracks: Sequence[Sequence[Completion]]) -> list[tuple[Completion, ...]]:
        """The tracks with what only the learner can tell of them: see `TrainablePolicy.is_scored_later`."""
        found: dict[int, Tensor] = {}
        for batch, _ in self._passes(self.policy, tracks, range(len(tracks))):
            evaluation = self.policy.evaluate([tracks[i] for i in batch])
            scores = torch.stack([evaluation.logprobs, evaluation.entropies]).float()
            lengths = [sum(len(turn.logprobs) for turn in tracks[i]) for i in batch]
            found |= dict(zip(batch, torch.split(scores, lengths, dim=1), strict=True))
        found = current().union(found)
        whole = [found[i].reshape(2, -1).cpu().numpy() for i in range(len(tracks))]
        return self.policy.scored(tracks, [logprobs for logprobs, _ in whole], [entropies for _, entropies in whole])

    def update(self, batch: TurnBatch) -> dict[str, float]:
        """Learn from the batch; returns metrics, averaged over the update's optimizer steps."""
        return self.prepared(batch)()

    def prepared(self, batch: TurnBatch) -> Callable[[], dict[str, float]]:
        """The update from the batch, to be done later, beside those of other policies.

        The order of its mini-batches is drawn here: all learners draw from one generator, one after the other.
        """
        tracks = batch.tracks
        if self.policy.reads_turns_alone and self.config.mini_batch_size is not None:
            tracks = [(turn,) for track in tracks for turn in track]
        return partial(self._update, batch, tracks, list(self._steps(len(tracks))))

    def _update(
        self, batch: TurnBatch, tracks: Sequence[Sequence[Completion]], steps: Sequence[Sequence[int]]
    ) -> dict[str, float]:
        rows = _Rows.of(tracks, self.device)
        is_off = self._is_off_policy(tracks, batch.version)
        parts = _Parts(*(None if part is None else sent(part, self.device) for part in (*_parts(batch), is_off)))
        limit = self.config.target_kl
        descent = Descent(self.optimizer, None if limit is None else ("kl_to_sampler", limit))
        per_epoch = len(steps) // self.config.ppo_epochs
        for number, chosen in enumerate(steps, start=1):
            # A limit is looked at once per epoch, as it may spare the rest; all else when all steps are queued.
            reads = number == len(steps) or (limit is not None and number % per_epoch == 0)
            if not descent.step(partial(self._gradient, parts, rows, chosen, batch.max_turns), reads=reads):
                break
        moved = self._kl_after_update(rows)
        self.policy.forget()
        first = descent.taken[0]
        means = {name: descent.mean(name) for name in first.sums}
        error = first.largest["logprob_error"]
        num_steps = float(len(descent.taken))
        return means | {"kl_after_update": moved, "logprob_error": error, "optimizer_steps": num_steps}

    @torch.no_grad()
    def _kl_after_update(self, rows: _Rows) -> float:
        """KL(policy at sampling || policy now) in nats per token, estimated on every eighth track.

        `kl_to_sampler` is measured in the passes that the steps are made of, so it does not see the last step: with one
        step per update it is always about 0.
        """
        chosen = [i for i in range(len(rows.tracks)) if len(rows.tokens[i])][::MEASURED_EVERY]
        num_tokens = sum(len(rows.tokens[i]) for i in chosen)
        counted, spare = Tally(), Tally()
        for micro, weight in self._passes(self.policy, rows.tracks, chosen):
            logprobs = self.policy.evaluate([rows.tracks[i] for i in micro]).logprobs
            sampled = rows.sampled[sent(torch.cat([rows.tokens[i] for i in micro]), self.device)]
            tally = counted if weight else spare
            tally.add("kl_after_update", approximate_kl(logprobs, sampled), len(sampled) / num_tokens)
        (found,) = numbers_of([counted])
        return found.sums["kl_after_update"]

    def _gradient(self, batch: _Parts, rows: _Rows, chosen: Sequence[int], max_turns: int | None) -> Tally:
        """Add up the gradient of a mini-batch.

        Returns:
            The mini-batch's metrics, and under "logprob_error" the largest difference of a log-probability from the
            sampler's in each pass.
        """
        counts = _Counts.of(rows, chosen)
        scale = self._scale(rows, chosen, counts, max_turns)
        counted, spare = Tally(), Tally()
        for micro, weight in self._passes(self.policy, rows.tracks, chosen):
            tally = counted if weight else spare
            evaluation = self.policy.evaluate([rows.tracks[i] for i in micro])
            turn_index = sent(torch.cat([rows.turns[i] for i in micro]), self.device)
            token_index = sent(torch.cat([rows.tokens[i] for i in micro]), self.device)
            sampled = rows.sampled[token_index]
            loss = self._loss(batch, evaluation, sampled, turn_index, token_index, counts, tally)
            tally.compare("logprob_error", (evaluation.logprobs.detach() - sampled).abs().max())
            share = len(sampled) / counts.tokens
            tally.add("kl_to_sampler", approximate_kl(evaluation.logprobs, sampled), share)
            self.optimizer.backward(weight * scale * loss)
        return counted

    def _scale(self, rows: _Rows, chosen: Sequence[int], counts: _Counts, max_turns: int | None) -> float:
        """Return the factor that replaces the count in the denominator of a mini-batch's loss by a constant.

        The mean over a sampled number of turns or tokens is a ratio of two random numbers, which is biased. The factor
        multiplies all terms of the loss, so their weights stay the same. The logged losses stay means.
        """
        if max_turns is None or not self._is_fixed:
            return 1.0
        denominator = max_turns * len(chosen) / len(rows.tracks)
        size = self.config.mini_batch_size
        if size is not None and self.policy.reads_turns_alone:
            # An epoch of a longer update has more mini-batches of turns, so each of them has to count less.
            denominator *= math.ceil(len(rows.tracks) / size) / math.ceil(max_turns / size)
        if self._is_per_turn:
            return counts.turns / denominator
        return counts.tokens / (denominator * self.policy.max_tokens_per_turn)

    def _passes(
        self, policy: TrainablePolicy, tracks: Sequence[Sequence[Completion]], chosen: Sequence[int]
    ) -> list[Pass]:
        """This rank's share of the passes over some tracks."""
        num_tokens = sum(policy.num_tokens(tracks[i]) for i in chosen)
        return dealt(lambda limit: policy.batches(tracks, chosen, limit), num_tokens, self.max_tokens)

    def _loss(
        self,
        batch: _Parts,
        evaluation: Evaluation,
        sampled: Tensor,
        turn_index: Tensor,
        token_index: Tensor,
        counts: _Counts,
        tally: Tally,
    ) -> Tensor:
        """Loss of a micro-batch: its part of the sum that makes the mini-batch's loss."""
        config = self.config
        assert batch.advantages is not None
        micro = PolicyBatch(
            evaluation.logprobs,
            sampled,
            evaluation.turn_of_token,
            batch.advantages[turn_index],
            counts.turns,
            counts.tokens,
            None if batch.is_off_policy is None else batch.is_off_policy[turn_index],
        )
        loss, metrics = self.algorithm.loss(micro)
        for name, share in metrics.items():
            tally.add(name, share)
        tally.add("policy_loss", loss)
        if config.entropy_coef:
            entropies, items = self._token_means(evaluation.entropies, micro)
            loss = loss - config.entropy_coef * entropy_bonus(entropies, items)
        if batch.reference_logprobs is not None:
            estimate = KL_ESTIMATORS[config.reference_kl_estimator or "k2"]
            divergence = estimate(evaluation.logprobs, batch.reference_logprobs[token_index])
            tally.add("reference_kl", divergence.sum().double() / counts.turns)
            if config.reference_kl_in == "loss":
                items = counts.turns
                if config.credit == "token":
                    divergence, items = self._token_means(divergence, micro)
                loss = loss + config.reference_kl_coef * divergence.sum() / items
        if batch.targets is not None and evaluation.values is not None:
            old = None if batch.old_values is None else batch.old_values[turn_index]
            error = value_loss(
                evaluation.values,
                batch.targets[turn_index],
                counts.turns,
                old if config.value_clip_range is not None else None,
                config.value_clip_range,
            )
            tally.add("value_loss", error)
            loss = loss + config.value_loss_coef * error
        return loss

    def _token_means(self, per_token: Tensor, micro: PolicyBatch) -> tuple[Tensor, int]:
        """Return items and a denominator: the mean per token of the mini-batch is the sum of all items divided by it.

        With a fixed denominator, the items are those of the policy loss: the turns' own means if each turn counts once.
        The mean over all tokens of the mini-batch would then be a ratio of two random numbers.
        """
        if self._is_fixed and self._is_per_turn:
            num_turns = len(micro.advantages)
            return turn_logprobs(per_token, micro.turn_of_token, num_turns, average_over_tokens=True), micro.num_turns
        return per_token, micro.num_tokens

    def _is_off_policy(self, tracks: Sequence[Sequence[Completion]], version: int) -> Tensor | None:
        """[N] where another distribution sampled a turn than these weights': older ones, or other arithmetic."""
        if self.policy.is_sampled_elsewhere:
            return torch.ones(sum(len(track) for track in tracks), dtype=torch.bool)
        if self.config.max_staleness:
            return torch.tensor([turn.version < version for track in tracks for turn in track])
        return None

    def _steps(self, num_tracks: int) -> Iterator[list[int]]:
        """Indices of the tracks of each optimizer step, epoch after epoch."""
        size = self.config.mini_batch_size
        for _ in range(self.config.ppo_epochs):
            if size is None:
                yield list(range(num_tracks))
                continue
            order = torch.randperm(num_tracks, generator=self.generator).tolist()
            for start in range(0, num_tracks, size):
                yield order[start : start + size]


class _Counts(NamedTuple):
    """Numbers of turns and tokens of a mini-batch."""

    turns: int
    tokens: int

    @classmethod
    def of(cls, rows: _Rows, chosen: Sequence[int]) -> _Counts:
        return cls(sum(len(rows.turns[i]) for i in chosen), sum(len(rows.tokens[i]) for i in chosen))


class _Parts(NamedTuple):
    """The tensors of a `TurnBatch`, on the device."""

    advantages: Tensor | None
    targets: Tensor | None
    old_values: Tensor | None
    reference_logprobs: Tensor | None
    is_off_policy: Tensor | None


def _parts(batch: TurnBatch) -> tuple[Tensor | None, ...]:
    return batch.advantages, batch.targets, batch.old_values, batch.reference_logprobs


@dataclass(frozen=True, slots=True)
class _Rows:
    """The tracks of an update, and where their turns and tokens stand in flat tensors."""

    tracks: Sequence[Sequence[Completion]]
    turns: list[Tensor]  # indices of each track's turns
    tokens: list[Tensor]  # indices of each track's tokens
    sampled: Tensor  # [K] log-probabilities at sampling

    @classmethod
    def of(cls, tracks: Sequence[Sequence[Completion]], device: torch.device) -> _Rows:
        logprobs = [turn.logprobs for track in tracks for turn in track]
        return cls(
            tracks,
            _slices([len(track) for track in tracks]),
            _slices([sum(len(turn.logprobs) for turn in track) for track in tracks]),
            sent(np.concatenate(logprobs), device),
        )


def _slices(counts: Sequence[int]) -> list[Tensor]:
    """Indices of each track's entries in a flat list."""
    return list(torch.split(torch.arange(sum(counts)), list(counts)))
