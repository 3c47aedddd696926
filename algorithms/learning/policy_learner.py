"""PolicyLearner: the update of one policy, in epochs, mini-batches and micro-batches, for all agents that share it.

A track contains one agent's turns in one episode. Axes: N turns (of all tracks together), K tokens (of all turns).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..._progress import advance, expect
from ...agents.batching import sent
from ...agents.core import Completion, Evaluation, TrainablePolicy
from ...envs.vectors.vector import VectorEnv
from ..algorithm import Algorithm, PolicyBatch
from ..config import TrainConfig
from ..functions.losses import approximate_kl
from ..rollout.episode import Episode
from .credit import Credit
from .critic_learner import CriticBatch
from .loss_terms import counts_turns, with_optional_terms
from .optimizer import Learner, Optimizer, Pass, Tally, means, own_passes

MEASURED_EVERY = 8  # the KL divergence after an update is estimated on every 8th track


@dataclass(frozen=True, slots=True)
class TurnBatch:
    """Turns that one policy learns from in an update, grouped by track."""

    tracks: Sequence[Sequence[Completion]]
    advantages: Tensor  # [N]
    targets: Tensor | None = None  # [N] normalized, for a value head on the policy
    old_values: Tensor | None = None  # [N] normalized, as predicted before the update
    reference_logprobs: Tensor | None = None  # [K], for a KL penalty in the loss
    max_turns: int | None = None  # largest possible N, for a fixed denominator of the loss; None: N
    version: int = 0  # version of the weights that learn: the number of finished updates


class PolicyLearner(Learner):
    """Trainer of one policy. `generator`, which all policies share, samples the order of mini-batches.

    `learning_rate` is the peak. None: the setting `agent_learning_rate`; if it is None too, the policy's default.
    """

    optimizer: Optimizer

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
        rates = (learning_rate, config.agent_learning_rate, policy.default_learning_rate)
        super().__init__(policy, config, next(rate for rate in rates if rate is not None))

    def start_update(self, update: int, episodes: Sequence[Episode]) -> None:
        """Set the policy's learning rate for an update, and update its observation statistics with the episodes."""
        self.optimizer.set_progress(update)
        # In the order of the episodes, because the order of the decisions depends on timing.
        seen = [completion for agent in self.agents for track in tracks_of(episodes, agent) for completion in track]
        if seen:
            self.policy.observe(seen)

    def prepare(self, batch: TurnBatch) -> Callable[[], dict[str, float]]:
        """Sample the order of the mini-batches; returns a function that updates the policy and returns mean metrics.

        All learners share one random number generator, so all are prepared before any is updated.
        """
        tracks = batch.tracks
        if self.policy.reads_turns_alone and self.config.mini_batch_size is not None:
            tracks = [(turn,) for track in tracks for turn in track]
        mini_batches = list(self._mini_batches(len(tracks)))
        expect(sum(len(self.passes(self.policy, tracks, chosen)) for chosen in mini_batches))
        return partial(self._update, batch, tracks, mini_batches)

    def _update(
        self, batch: TurnBatch, tracks: Sequence[Sequence[Completion]], mini_batches: Sequence[Sequence[int]]
    ) -> dict[str, float]:
        rows = _Rows.of(batch, tracks, self._is_off_policy(tracks, batch.version), self.device)
        steps: list[dict[str, float]] = []
        for chosen in mini_batches:
            metrics = None
            while metrics is None:  # again with a smaller loss scale, if a float16 gradient overflowed
                self.optimizer.zero_grad()
                metrics = self.optimizer.step(self._gradient(rows, chosen, batch.max_turns))
            steps.append(metrics)
            if self.config.target_kl is not None and metrics["kl_to_sampler"] > self.config.target_kl:
                break
        moved = self._kl_after_update(rows)
        self.policy.forget()
        errors = [step.pop("logprob_error") for step in steps]
        return means(steps) | {
            "kl_after_update": moved,
            "logprob_error": errors[0],
            "optimizer_steps": float(len(steps)),
        }

    def _gradient(self, rows: _Rows, chosen: Sequence[int], max_turns: int | None) -> Tally:
        """Accumulate the gradient of a mini-batch of tracks over its micro-batches; returns the metrics."""
        num_turns = sum(len(rows.turns[i]) for i in chosen)
        num_tokens = sum(len(rows.tokens[i]) for i in chosen)
        scale = self._scale(len(rows.tracks), chosen, num_turns, num_tokens, max_turns)
        tally = Tally()
        for micro, weight in self.passes(self.policy, rows.tracks, chosen):
            metrics = tally if weight else Tally()  # numbers of a padding pass are not used
            evaluation = self.policy.evaluate([rows.tracks[i] for i in micro])
            inputs = rows.inputs(micro)
            loss = self._loss(evaluation, inputs, num_turns, num_tokens, metrics)
            sampled = inputs["sampled"]
            metrics.add_maximum("logprob_error", (evaluation.logprobs.detach() - sampled).abs().max())
            metrics.add("kl_to_sampler", approximate_kl(evaluation.logprobs, sampled), len(sampled) / num_tokens)
            torch.autograd.backward(self.optimizer.scaled(weight * scale * loss))
            advance()
        return tally

    def _loss(
        self, evaluation: Evaluation, inputs: Mapping[str, Tensor], num_turns: int, num_tokens: int, tally: Tally
    ) -> Tensor:
        """Return the loss of a micro-batch. The sum over the micro-batches is the mini-batch's loss."""
        batch = PolicyBatch(
            evaluation.logprobs,
            inputs["sampled"],
            evaluation.turn_of_token,
            inputs["advantages"],
            num_turns,
            num_tokens,
            inputs.get("is_off_policy"),
        )
        loss, metrics = self.algorithm.loss(batch)
        for name, number in metrics.items():
            tally.add(name, number)
        tally.add("policy_loss", loss)
        if self.config.entropy_coef or "reference_logprobs" in inputs or "targets" in inputs:
            return with_optional_terms(loss, self.algorithm, evaluation, batch, inputs, tally)
        return loss

    def _scale(
        self, num_tracks: int, chosen: Sequence[int], num_turns: int, num_tokens: int, max_turns: int | None
    ) -> float:
        """Return the factor of a mini-batch's loss that turns its sampled denominator into a constant.

        The loss is a sum divided by the sampled number of turns or tokens. Such a ratio of random numbers is biased.
        """
        if max_turns is None or self.config.loss_denominator != "fixed":
            return 1.0
        denominator = max_turns * len(chosen) / num_tracks
        size = self.config.mini_batch_size
        if size is not None and self.policy.reads_turns_alone:
            # An epoch of a longer update has more mini-batches of turns, so each mini-batch needs a smaller weight.
            denominator *= math.ceil(num_tracks / size) / math.ceil(max_turns / size)
        if counts_turns(self.config):
            return num_turns / denominator
        return num_tokens / (denominator * self.policy.max_tokens_per_turn)

    @torch.no_grad()
    def _kl_after_update(self, rows: _Rows) -> float:
        """Estimate KL(policy at sampling || updated policy), in nats per token."""
        chosen = [i for i in range(len(rows.tracks)) if len(rows.tokens[i])][::MEASURED_EVERY]
        num_tokens = sum(len(rows.tokens[i]) for i in chosen)
        tally = Tally()
        for micro, weight in self.passes(self.policy, rows.tracks, chosen):
            logprobs = self.policy.evaluate([rows.tracks[i] for i in micro]).logprobs
            sampled = rows.inputs(micro)["sampled"]
            if weight:
                tally.add("kl_after_update", approximate_kl(logprobs, sampled), len(sampled) / num_tokens)
        return tally.read()["kl_after_update"]

    def passes(
        self, policy: TrainablePolicy, tracks: Sequence[Sequence[Completion]], chosen: Sequence[int]
    ) -> list[Pass]:
        """Divide the chosen tracks into micro-batches; returns those of this rank."""
        num_tokens = sum(policy.num_tokens(tracks[i]) for i in chosen)
        return own_passes(lambda limit: policy.batches(tracks, chosen, limit), num_tokens, self.max_tokens)

    def _is_off_policy(self, tracks: Sequence[Sequence[Completion]], version: int) -> Tensor | None:
        """Return [N] bools, True for turns that older weights or an inference server sampled. None: no such turn."""
        if self.policy.is_sampled_elsewhere:
            return torch.ones(sum(len(track) for track in tracks), dtype=torch.bool)
        if self.config.max_staleness:
            return torch.tensor([turn.version < version for track in tracks for turn in track])
        return None

    def _mini_batches(self, num_tracks: int) -> Iterator[list[int]]:
        size = self.config.mini_batch_size
        for _ in range(self.config.ppo_epochs):
            if size is None:
                yield list(range(num_tracks))
                continue
            order = torch.randperm(num_tracks, generator=self.generator).tolist()
            for start in range(0, num_tracks, size):
                yield order[start : start + size]

    def state_dict(self) -> dict[str, Any]:
        return {"policy": self.policy.state_dict(), "optimizer": self.optimizer.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.policy.load_state_dict(state["policy"])
        self.optimizer.load_state_dict(state["optimizer"])


@dataclass(frozen=True, slots=True)
class _Rows:
    """Tracks of an update with all inputs of the policy's loss except the policy's evaluation."""

    tracks: Sequence[Sequence[Completion]]
    turns: list[Tensor]  # indices of each track's turns
    tokens: list[Tensor]  # indices of each track's tokens
    of_turns: dict[str, Tensor]  # [N] each
    of_tokens: dict[str, Tensor]  # [K] each

    @classmethod
    def of(
        cls,
        batch: TurnBatch,
        tracks: Sequence[Sequence[Completion]],
        is_off_policy: Tensor | None,
        device: torch.device,
    ) -> _Rows:
        sampled = torch.from_numpy(np.concatenate([turn.logprobs for track in tracks for turn in track]))
        of_turns = {"advantages": batch.advantages, "targets": batch.targets, "old_values": batch.old_values}
        of_turns |= {"is_off_policy": is_off_policy}
        of_tokens = {"sampled": sampled, "reference_logprobs": batch.reference_logprobs}
        return cls(
            tracks,
            _slices([len(track) for track in tracks]),
            _slices([sum(len(turn.logprobs) for turn in track) for track in tracks]),
            {name: sent(tensor, device) for name, tensor in of_turns.items() if tensor is not None},
            {name: sent(tensor, device) for name, tensor in of_tokens.items() if tensor is not None},
        )

    def inputs(self, chosen: Sequence[int]) -> dict[str, Tensor]:
        device = self.of_tokens["sampled"].device
        turns = sent(torch.cat([self.turns[i] for i in chosen]), device)
        tokens = sent(torch.cat([self.tokens[i] for i in chosen]), device)
        of_turns = {name: tensor[turns] for name, tensor in self.of_turns.items()}
        return of_turns | {name: tensor[tokens] for name, tensor in self.of_tokens.items()}


def policy_batch(
    learner: PolicyLearner,
    episodes: Sequence[Episode],
    credits: Mapping[str, Credit],
    references: Mapping[str, Sequence[Tensor]],
    critic_batches: Sequence[CriticBatch],
    max_turns: int,
    update: int,
) -> TurnBatch:
    """Collect the turns that a policy learns from in an update, with their credit.

    `references` are log-probabilities under the reference policies, empty without a KL penalty.
    """
    agents = [agent for agent in learner.agents if agent in credits]
    targets = old_values = None
    for batch in critic_batches:
        if batch.critic.is_actor_head and agents[0] in batch.critic.agents:
            # Targets are normalized by the moments that include these targets, values by the earlier moments.
            targets = batch.critic.moments.normalize(torch.cat([credits[agent].targets for agent in agents]))
            old_values = batch.moments.normalize(torch.cat([credits[agent].values for agent in agents]))
    return TurnBatch(
        tracks=[track for agent in agents for track in tracks_of(episodes, agent)],
        advantages=torch.cat([credits[agent].advantages for agent in agents]),
        targets=targets,
        old_values=old_values,
        reference_logprobs=torch.cat([each for agent in agents for each in references[agent]]) if references else None,
        max_turns=max_turns * len(learner.agents),
        version=update,
    )


def max_joint_turns(config: TrainConfig, vector: VectorEnv, episodes: Sequence[Episode]) -> int:
    """Return the largest number of joint turns that these episodes can have, independent of sampled actions.

    If the environment has no turn limit, 1 turn per episode is assumed. With `turns_per_update` the number is fixed.
    """
    if config.turns_per_update is not None:
        return sum(episode.num_turns for episode in episodes)
    return len(episodes) * (vector.turn_limit or 1)


def tracks_of(episodes: Sequence[Episode], agent: str) -> list[tuple[Completion, ...]]:
    """Return an agent's completions: one track per episode in which the agent acted."""
    return [tuple(turn.completion for turn in each.tracks[agent]) for each in episodes if agent in each.tracks]


def _slices(counts: Sequence[int]) -> list[Tensor]:
    return list(torch.split(torch.arange(sum(counts)), list(counts)))
