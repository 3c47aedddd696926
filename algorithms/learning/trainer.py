"""Trainer: the training step of all algorithms. An algorithm is a credit rule and a loss (`Algorithm`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ..._progress import phase
from ...agents.core import TrainablePolicy
from ..algorithm import Algorithm, check_warmup_budget
from ..distribution.group import current
from ..rollout.collector import RolloutCollector
from ..rollout.episode import Episode
from ..rollout.side_by_side import ModelTask
from ..rollout.sources import LocalSource, RolloutWorker, make_source
from ..rollout.summary import episode_metrics
from .credit import Credit, assign_credit, critic_metrics
from .critic_learner import CriticLearner
from .learners import distinct, make_learners, policy_weights
from .offloading import WeightOffloader
from .optimizer import Learner, means
from .policy_learner import max_joint_turns, policy_batch
from .progress import Progress, add_error_details
from .rewards import Rewarder, RewardProcessor, Rewards
from .scoring import add_missing_logprobs, reference_logprobs

PASSES = "micro-batches"  # units of the phases of an update
Recorder = Callable[[int, Sequence[Episode], Mapping[str, Credit]], None]  # stores the episodes of an update


class Trainer:
    """Trainer of policies on episodes that the policies play together.

    Args:
        algorithm: settings, credit rule and loss.
        collector: collector on the training environment; its trainable policies learn.
        critics: critic of each agent, or one critic with the key "joint", depending on `algorithm.critic_reads`.
        references: frozen copy of each agent's policy; needed for a KL penalty.
        rewarder: replaces the rewards to learn from, for example by a reward model's. Logged returns do not change.
        reward_processor: function that is applied to every reward to learn from.
        worker: plays the episodes with copies of the policies; needed with `max_staleness` or `collectors`.

    Attributes:
        learners: learner of each agent's policy; agents that share a policy share the learner.
        credits: credit of each agent's turns in the last update.
        undo_bytes: largest size in host memory of a copy of the state before an update.
        can_save: False while an update has changed the state, and there is no copy of the state before the update.

    Raises:
        ValueError: if no policy can learn, a learning rate is given for an unknown agent, or the worker is missing.
    """

    def __init__(
        self,
        algorithm: Algorithm[Any],
        collector: RolloutCollector,
        critics: Mapping[str, CriticLearner] | None = None,
        *,
        references: Mapping[str, TrainablePolicy] | None = None,
        rewarder: Rewarder | None = None,
        reward_processor: RewardProcessor | None = None,
        worker: RolloutWorker | None = None,
    ):
        self.algorithm = algorithm = algorithm.resolved(collector.vector.interests)
        self.config = algorithm.config
        self.collector = collector
        self.references = dict(references or {})
        self.generator = torch.Generator().manual_seed(self.config.seed)
        self.learners = make_learners(algorithm, collector.policies, self.generator)
        self.critics = dict(critics or {})
        self.unique_learners = distinct(self.learners)
        self.unique_critics = distinct(self.critics)
        self.has_separate_critics = any(not critic.is_actor_head for critic in self.unique_critics)
        self.source = make_source(self.config, collector, worker, lambda: policy_weights(self.unique_learners))
        self.rewards = Rewards(algorithm, collector.vector, rewarder, reward_processor)
        self.offloader: WeightOffloader | None = None
        if self.config.offload == "learner":
            models: list[Learner] = [*self.unique_learners, *self.unique_critics]
            self.offloader = WeightOffloader({learner: learner.model.parameters() for learner in models})
            self.offloader.only(self.unique_learners)
        self.progress = Progress(self.config)
        self.credits: Mapping[str, Credit] = {}
        self.undo_bytes = 2**30
        self.can_save = True
        self._state_before: dict[str, Any] | None = None

    def step(self, record: Recorder | None = None) -> tuple[list[Episode], dict[str, float]]:
        """Run one training update; returns its episodes and metrics.

        `record` is called with the update's number, episodes and credit before any weight changes. If computing the
        credit fails, `record` gets empty credit.

        Raises:
            ValueError: if a budget, such as `max_sampled_tokens`, is used up before any policy learns.
            EnvironmentFault: if the environment raises an error or violates its API; contains episode and update.
            Divergence: if a number is not finite; contains agent and update. Only earlier optimizer steps are kept.
        """
        update = self.progress.update
        annotated = self.progress.errors_annotated(self.learners, updates_ahead=1)
        with annotated, phase(f"update {update + 1}"), phase("collect") as work:
            # 1. Roll out. Completions of servers without log-probabilities are evaluated with the current weights.
            may_stop = work.observer is not None and self._can_undo()  # only an observer can stop an update
            self._state_before = _copied(self.state_dict()) if may_stop else None
            rollout = self.source.next(update)
            self.can_save = self._state_before is not None
            work.begin("score", PASSES)
            episodes = add_missing_logprobs(self.unique_learners, rollout.episodes)
            for learner in self.unique_learners:
                learner.policy.rest()  # releases memory that only sampling needs

            # 2. Compute rewards and assign credit. Episodes are recorded before any weight changes.
            work.begin("credit", PASSES)
            self.credits = {}
            try:
                for learner in self.unique_learners:
                    learner.start_update(update, episodes)
                has_kl = self.config.reference_kl_coef > 0
                references = reference_logprobs(self.learners, self.references, episodes) if has_kl else {}
                rewarded = self.rewards(episodes, references)
                valuing = self.unique_critics if self.has_separate_critics else self.unique_learners
                with add_error_details(rewards=rewarded.reward_range), self._on_device(valuing):
                    team, policies = self.collector.vector.possible_agents, self.collector.policies
                    self.credits, critic_batches = assign_credit(
                        self.algorithm, rewarded.episodes, list(self.learners), self.critics, team, policies
                    )
            finally:
                if record is not None:
                    record(update + 1, episodes, self.credits)
            interests = self.collector.vector.interests
            metrics = episode_metrics(episodes, self.config.credited_reward, interests) | critic_metrics(critic_batches)
            if self.algorithm.advantage_limit < 1:
                metrics["advantage_limit"] = self.algorithm.advantage_limit

            with add_error_details(rewards=rewarded.reward_range):
                # 3. Update the critics. For a value head, `prepare` returns no update: the head learns in phase 4.
                work.begin("critics", PASSES)
                for batch in critic_batches:
                    batch.critic.start_update(update)
                regressions = [(each.critic, each.critic.prepare(each.inputs, each.targets)) for each in critic_batches]
                metrics |= self._run(regressions)

                # 4. Update the policies, unless only the critics learn.
                work.begin("policies", PASSES)
                is_warming_up = self.has_separate_critics and self.algorithm.warms_up(update, metrics)
                if is_warming_up:
                    for learner in self.unique_learners:
                        learner.policy.forget()  # a run that resumes here also starts with empty caches
                else:
                    max_turns = max_joint_turns(self.config, self.collector.vector, episodes)
                    parts = (episodes, self.credits, references, critic_batches, max_turns, update)
                    learners = dict.fromkeys(self.learners[agent] for agent in self.credits)
                    metrics |= self._run([(each, each.prepare(policy_batch(each, *parts))) for each in learners])

            # 5. Count.
            work.begin("count")
            metrics |= self.progress.advance(rollout, episodes, rewarded.num_extra_turns, work.seconds)
            if update < self.algorithm.critic_warmup:
                check_warmup_budget(self.config, self.progress.num_turns, self.progress.num_tokens)
        self.progress.last_metrics = metrics
        self.can_save, self._state_before = True, None
        return episodes, dict(metrics)

    def _run(self, updates: Sequence[tuple[Learner, Callable[[], dict[str, float]]]]) -> dict[str, float]:
        """Run prepared updates of learners; returns mean metrics. Different models may learn in parallel threads."""
        # Offloading keeps one model on the device, and ranks must call collectives in the same order.
        is_sequential = self.offloader is not None or current().is_orderly
        tasks: list[ModelTask[Mapping[str, float]]] = [
            ModelTask(None if is_sequential else learner.model.workplace(), partial(self._run_one, learner, update))
            for learner, update in updates
        ]
        return means(self.collector.side_by_side.results(tasks))

    def _run_one(self, learner: Learner, update: Callable[[], dict[str, float]]) -> dict[str, float]:
        with add_error_details(agents=learner.agents), self._on_device([learner]):
            metrics = update()
            if learner.optimizer is not None:
                learner.optimizer.zero_grad()
            return metrics

    def _on_device(self, learners: Sequence[Learner]) -> AbstractContextManager[None]:
        """Keep only these learners' weights on the device inside the block, and only the policies' weights after it."""
        return nullcontext() if self.offloader is None else self.offloader.on_device(learners, self.unique_learners)

    def close(self) -> None:
        self.source.close()
        self.collector.vector.close()

    @contextmanager
    def whole(self) -> Iterator[None]:
        """Gather all weights and AdamW's moments on rank 0 inside the block, if ranks hold shards (collective)."""
        with ExitStack() as stack:
            for learner in (*self.unique_learners, *self.unique_critics):
                stack.enter_context(learner.whole())
            yield

    def state_dict(self) -> dict[str, Any]:
        """Return the state for resuming with bit-for-bit equal results. Call it inside `whole` if ranks hold shards.

        During an update, the state before the update is returned if the trainer has a copy of this state.
        """
        if self._state_before is not None:
            return self._state_before
        return {
            **self.progress.state_dict(),
            "generator": self.generator.get_state(),
            "algorithm": self.algorithm.state_dict(),
            "collector": self.collector.state_dict(),
            **self.source.state_dict(self.progress.update),
            "learners": {learner.agents[0]: learner.state_dict() for learner in self.unique_learners},
            "learner_of": {agent: learner.agents[0] for agent, learner in self.learners.items()},
            "critics": {critic.agents[0]: critic.state_dict() for critic in self.unique_critics},
        }

    def _can_undo(self) -> bool:
        """Return True if the state before an update, with AdamW's two moments, can be copied to host memory."""
        models = [*self.unique_learners, *self.unique_critics]
        num_bytes = sum(3 * weight.nbytes for learner in models for weight in learner.model.parameters())
        return num_bytes <= self.undo_bytes and current().size == 1 and isinstance(self.source, LocalSource)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.can_save, self._state_before = True, None
        self.progress.load_state_dict(state)
        self.generator.set_state(state["generator"])
        self.algorithm.load_state_dict(state["algorithm"])
        self.collector.load_state_dict(state["collector"])
        self.source.load_state_dict(state)
        for learner in self.unique_learners:
            learner.load_state_dict(state["learners"][learner.agents[0]])
            learner.optimizer.keep_rate(self.progress.update)
        for critic in self.unique_critics:
            critic.load_state_dict(state["critics"][critic.agents[0]])


def _copied(state: Any) -> Any:
    if isinstance(state, dict):
        return {name: _copied(value) for name, value in state.items()}
    return state.detach().to("cpu", copy=True) if isinstance(state, Tensor) else state
