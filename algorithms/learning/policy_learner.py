"""PolicyLearner: the update of one policy, in epochs, mini-batches and micro-batches, for all agents that share it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from ...agents.batching import sent
from ...agents.core import Completion, TrainablePolicy, Workplace
from ..algorithm import Algorithm
from ..distribution.group import current
from ..functions.losses import approximate_kl
from ..rollout.episode import Episode
from .executor import Update
from .metrics import Numbers, Tally, means
from .optimizer import Optimizer
from .passes import Pass, dealt, tokens_per_pass
from .policy_loss import LossParts, counts_turns, policy_loss

MEASURED_EVERY = 8
"""Step between the tracks on which the policy is evaluated again after an update."""


@dataclass(frozen=True, slots=True)
class TurnBatch:
    """Turns that one policy learns from. Axes: N turns of all tracks, K tokens of all turns."""

    tracks: Sequence[Sequence[Completion]]
    advantages: Tensor  # [N]
    targets: Tensor | None = None  # [N] normalized, for a value head on the policy
    old_values: Tensor | None = None  # [N] normalized, as predicted before the update
    reference_logprobs: Tensor | None = None  # [K], for a KL penalty in the loss
    max_turns: int | None = None  # largest N possible, for a fixed denominator of the loss; None: N
    version: int = 0  # of the weights that learn: the number of updates done


class PolicyLearner:
    """Trains one policy.

    Args:
        policy: the policy that learns.
        algorithm: source of the loss, the epochs and the learning-rate schedule.
        generator: source of the order of mini-batches.
        learning_rate: peak learning rate. None: `agent_learning_rate`, else the policy's own default.

    Attributes:
        agents: agents that play the policy; set by the trainer.
    """

    def __init__(
        self,
        policy: TrainablePolicy,
        algorithm: Algorithm[Any],
        generator: torch.Generator,
        learning_rate: float | None = None,
    ):
        self.agents: list[str] = []
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

    def parameters(self) -> list[nn.Parameter]:
        return self.policy.parameters()

    def workplace(self) -> Workplace | None:
        return self.policy.workplace()

    def free_gradients(self) -> None:
        self.optimizer.zero_grad()

    @contextmanager
    def whole(self) -> Iterator[None]:
        """Inside the block rank 0 has all weights and moments, also if ranks hold shards (collective)."""
        with self.policy.whole(), self.optimizer.whole():
            yield

    def state_dict(self) -> dict[str, Any]:
        return {"policy": self.policy.state_dict(), "optimizer": self.optimizer.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.policy.load_state_dict(state["policy"])
        self.optimizer.load_state_dict(state["optimizer"])

    def start_update(self, update: int, episodes: Sequence[Episode]) -> None:
        """Set the learning rate of an update, counted from 0, and observe its episodes.

        A policy with observation statistics updates them here, in the order of the episodes: the order in which
        decisions were made depends on timing.
        """
        self.optimizer.set_progress(update)
        seen = [completion for agent in self.agents for track in tracks_of(episodes, agent) for completion in track]
        if seen:
            self.policy.observe(seen)

    def rescored(self, episodes: Sequence[Episode]) -> list[Episode]:
        """Episodes with the log-probabilities that a server did not return; see `TrainablePolicy.is_scored_later`."""
        scored = list(episodes)
        places = [(n, agent) for n, each in enumerate(episodes) for agent in self.agents if agent in each.tracks]
        if not self.policy.is_scored_later or not places:
            return scored
        found = self.scored([[turn.completion for turn in episodes[n].tracks[agent]] for n, agent in places])
        for (n, agent), completions in zip(places, found, strict=True):
            pairs = zip(scored[n].tracks[agent], completions, strict=True)
            track = tuple(replace(turn, completion=completion) for turn, completion in pairs)
            scored[n] = replace(scored[n], tracks={**scored[n].tracks, agent: track})
        return scored

    @torch.no_grad()
    def scored(self, tracks: Sequence[Sequence[Completion]]) -> list[tuple[Completion, ...]]:
        """Tracks with log-probabilities and entropies of the present weights; see `TrainablePolicy.scored`."""
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
        """Learn from a batch; returns metrics, averaged over the optimizer steps."""
        return self.prepare(batch).run()

    def prepare(self, batch: TurnBatch) -> Update:
        """Prepare the update from a batch: draw the order of the mini-batches.

        All learners draw from one generator, so they prepare one after the other, before any of them learns.
        """
        tracks = batch.tracks
        if self.policy.reads_turns_alone and self.config.mini_batch_size is not None:
            tracks = [(turn,) for track in tracks for turn in track]
        return Update(self, partial(self._update, batch, tracks, list(self._mini_batches(len(tracks)))))

    def _update(
        self, batch: TurnBatch, tracks: Sequence[Sequence[Completion]], mini_batches: Sequence[Sequence[int]]
    ) -> dict[str, float]:
        rows = _Rows.of(tracks, self.device)
        parts = LossParts(
            batch.advantages,
            batch.targets,
            batch.old_values,
            batch.reference_logprobs,
            self._is_off_policy(tracks, batch.version),
        ).to(self.device)
        steps: list[Numbers] = []
        for chosen in mini_batches:
            numbers = None
            while numbers is None:  # again if a float16 gradient overflowed: the loss scale is then smaller
                self.optimizer.zero_grad()
                numbers = self.optimizer.take_step(self._gradient(parts, rows, chosen, batch.max_turns))
            steps.append(numbers)
            if self.config.target_kl is not None and numbers.sums["kl_to_sampler"] > self.config.target_kl:
                break
        moved = self._kl_after_update(rows)
        self.policy.forget()
        error = steps[0].largest["logprob_error"]
        return means([each.sums for each in steps]) | {
            "kl_after_update": moved,
            "logprob_error": error,
            "optimizer_steps": float(len(steps)),
        }

    @torch.no_grad()
    def _kl_after_update(self, rows: _Rows) -> float:
        """KL(policy at sampling || policy now) in nats per token, estimated on every eighth track.

        `kl_to_sampler` is measured in the forward passes of the steps, before each step: with one step per update it
        is about 0.
        """
        chosen = [i for i in range(len(rows.tracks)) if len(rows.tokens[i])][::MEASURED_EVERY]
        num_tokens = sum(len(rows.tokens[i]) for i in chosen)
        counted, spare = Tally(), Tally()
        for micro, weight in self._passes(self.policy, rows.tracks, chosen):
            logprobs = self.policy.evaluate([rows.tracks[i] for i in micro]).logprobs
            sampled = rows.sampled[sent(torch.cat([rows.tokens[i] for i in micro]), self.device)]
            tally = counted if weight else spare
            tally.add("kl_after_update", approximate_kl(logprobs, sampled), len(sampled) / num_tokens)
        return counted.read().sums["kl_after_update"]

    def _gradient(self, parts: LossParts, rows: _Rows, chosen: Sequence[int], max_turns: int | None) -> Tally:
        """Accumulate the gradient of a mini-batch over its micro-batches.

        Returns:
            The mini-batch's metrics. "logprob_error" is the largest difference of a log-probability from the sampler's.
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
            loss = policy_loss(self.algorithm, evaluation, sampled, parts.at(turn_index, token_index), *counts, tally)
            tally.compare("logprob_error", (evaluation.logprobs.detach() - sampled).abs().max())
            share = len(sampled) / counts.tokens
            tally.add("kl_to_sampler", approximate_kl(evaluation.logprobs, sampled), share)
            torch.autograd.backward(self.optimizer.scaled(weight * scale * loss))
        return counted

    def _scale(self, rows: _Rows, chosen: Sequence[int], counts: _Counts, max_turns: int | None) -> float:
        """Return the factor that replaces the count in the denominator of a mini-batch's loss by a constant.

        The mean over a sampled number of turns or tokens is a ratio of two random numbers, which is biased. The factor
        multiplies all terms of the loss, so their weights stay the same. The logged losses stay means.
        """
        if max_turns is None or self.config.loss_denominator != "fixed":
            return 1.0
        denominator = max_turns * len(chosen) / len(rows.tracks)
        size = self.config.mini_batch_size
        if size is not None and self.policy.reads_turns_alone:
            # An epoch of a longer update has more mini-batches of turns, so each of them has to count less.
            denominator *= math.ceil(len(rows.tracks) / size) / math.ceil(max_turns / size)
        if counts_turns(self.config):
            return counts.turns / denominator
        return counts.tokens / (denominator * self.policy.max_tokens_per_turn)

    def _passes(
        self, policy: TrainablePolicy, tracks: Sequence[Sequence[Completion]], chosen: Sequence[int]
    ) -> list[Pass]:
        """This rank's micro-batches of some tracks."""
        num_tokens = sum(policy.num_tokens(tracks[i]) for i in chosen)
        return dealt(lambda limit: policy.batches(tracks, chosen, limit), num_tokens, self.max_tokens)

    def _is_off_policy(self, tracks: Sequence[Sequence[Completion]], version: int) -> Tensor | None:
        """[N] True if a turn was sampled by older weights, or in other arithmetic. None: no turn was."""
        if self.policy.is_sampled_elsewhere:
            return torch.ones(sum(len(track) for track in tracks), dtype=torch.bool)
        if self.config.max_staleness:
            return torch.tensor([turn.version < version for track in tracks for turn in track])
        return None

    def _mini_batches(self, num_tracks: int) -> Iterator[list[int]]:
        """Indices of the tracks of each mini-batch, epoch after epoch."""
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


@dataclass(frozen=True, slots=True)
class _Rows:
    """Tracks of an update, with the positions of their turns and tokens in flat tensors."""

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


def tracks_of(episodes: Sequence[Episode], agent: str) -> list[tuple[Completion, ...]]:
    """Completions of an agent's tracks, one per episode that the agent took part in."""
    return [tuple(turn.completion for turn in each.tracks[agent]) for each in episodes if agent in each.tracks]


def _slices(counts: Sequence[int]) -> list[Tensor]:
    """Indices of each track's entries in a flat list."""
    return list(torch.split(torch.arange(sum(counts)), list(counts)))
