"""Trainer: the training step. Roll out, compute rewards, assign credit, update critics, update policies.

    RolloutSource   episodes of the present weights, or played in advance      rollout/sources.py
    Rewards         rewards to learn from                                      learning/rewards.py
    assign_credit   advantages and value targets per turn                      learning/credit.py
    Executor        runs updates: one by one, in threads, or with offloading   learning/executor.py
    CriticLearner   value regression of one critic                             learning/critic_learner.py
    PolicyLearner   policy-gradient or PPO update of one policy                learning/policy_learner.py

All algorithms share this step. An algorithm is a credit rule and a loss (`Algorithm`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch

from ...agents.core import Divergence, TrainablePolicy
from ...envs.vectors.faults import EnvironmentFault
from ..algorithm import Algorithm, check_warmup_budget
from ..rollout.collector import RolloutCollector
from ..rollout.episode import Episode
from ..rollout.requests import Rollout
from ..rollout.sources import RolloutWorker, make_source
from ..rollout.summary import episode_metrics
from .credit import Credit, assign_credit, critic_metrics
from .critic_learner import CriticLearner
from .cross_rollouts import RewardProcessor
from .executor import Executor
from .learners import distinct, make_learners, max_joint_turns, policy_batch, policy_weights, reference_logprobs
from .metrics import Timer, annotated
from .rewards import RewardedEpisodes, Rewarder, Rewards

Recorder = Callable[[int, Sequence[Episode], Mapping[str, Credit]], None]
"""Stores the episodes of an update, with the credit of each agent's turns."""


class Trainer:
    """Trains policies on episodes that they play together.

    Args:
        algorithm: settings, credit rule and loss.
        collector: collector on the training environment; its trainable policies learn.
        critics: critics by agent, one critic by "joint", or none, as `algorithm.critic_reads` says.
        references: frozen copies of the policies, by agent; needed for a KL penalty.
        rewarder: replaces the rewards to learn from, such as a reward model does; logged returns stay the
            environment's.
        reward_processor: applied to every reward to learn from.
        worker: plays the episodes with copies of the policies, on rank 0; needed with `max_staleness` or `collectors`.
            None: the collector plays them with the policies themselves.

    Attributes:
        update: number of updates done.
        num_turns: environment steps taken.
        num_tokens: tokens sampled.
        seconds: seconds of all updates.
        learners: learner of each agent's policy; agents that share a policy share the learner.
        unique_learners, unique_critics: each learner of a policy, and of a critic, once.
        credits: credit of the last update's episodes, by agent.
        last_metrics: metrics of the last update.

    Raises:
        ValueError: if no policy can learn, a learning rate is given for an agent that does not exist, or the worker
            is missing.
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
        self.algorithm = algorithm
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
        self.executor = Executor(self.config, collector.side_by_side, self.unique_learners, self.unique_critics)
        self.update = 0
        self.num_turns = 0
        self.num_tokens = 0
        self.seconds = 0.0
        self.credits: Mapping[str, Credit] = {}
        self.last_metrics: Mapping[str, float] = {}

    def step(self, record: Recorder | None = None) -> tuple[list[Episode], dict[str, float]]:
        """Take one update; returns its episodes and metrics.

        Args:
            record: called with the number of the update, its episodes and their credit before any weight changes, also
                if computing the credit fails; the credit is then empty.

        Raises:
            ValueError: if the budget is used up before any policy learns.
            EnvironmentFault: if the environment raises or breaks its contract, with the episode and the update.
            Divergence: if a number is not finite, with the agent and the update; the failed step changes no weight.
        """
        with self.errors_annotated(updates_ahead=1):
            timer = Timer()
            # 1. Roll out, and compute the log-probabilities that a server did not return.
            rollout = self.source.next(self.update)
            episodes = rollout.episodes
            for learner in self.unique_learners:
                episodes = learner.rescored(episodes)
            for learner in self.unique_learners:
                learner.policy.rest()
            timer.lap("rollout")

            # 2. Compute rewards and assign credit. Episodes are recorded before any weight changes.
            self.credits = {}
            try:
                for learner in self.unique_learners:
                    learner.start_update(self.update, episodes)
                references = reference_logprobs(self.config, self.learners, self.references, episodes)
                rewarded = self.rewards(episodes, references)
                valuing = self.unique_critics if self.has_separate_critics else self.unique_learners
                with annotated(rewards=rewarded.reward_range), self.executor.on_device(valuing):
                    self.credits, critic_batches = assign_credit(
                        self.algorithm,
                        rewarded.episodes,
                        [agent for agent in self.learners if any(agent in episode.tracks for episode in episodes)],
                        self.critics,
                        self.collector.vector.possible_agents,
                    )
            finally:
                if record is not None:
                    record(self.update + 1, episodes, self.credits)
            metrics = episode_metrics(episodes, self.config.credited_reward) | critic_metrics(critic_batches)
            timer.lap("credit")

            with annotated(rewards=rewarded.reward_range):
                # 3. Update the critics.
                for batch in critic_batches:
                    batch.critic.start_update(self.update)
                regressions = [batch.critic.prepare(batch.inputs, batch.targets) for batch in critic_batches]
                metrics |= self.executor.run(regressions)
                timer.lap("critics")

                # 4. Update the policies, unless the critics still warm up.
                is_warming_up = self.has_separate_critics and self.algorithm.warms_up(self.update, metrics)
                if is_warming_up:
                    for learner in self.unique_learners:
                        learner.policy.forget()  # a run that resumes here starts with empty caches, too
                else:
                    max_turns = max_joint_turns(self.config, self.collector.vector, episodes)
                    parts = (episodes, self.credits, references, critic_batches, max_turns, self.update)
                    learners = dict.fromkeys(self.learners[agent] for agent in self.credits)
                    metrics |= self.executor.run([each.prepare(policy_batch(each, *parts)) for each in learners])
                timer.lap("policies")

            # 5. Count.
            metrics |= self._advance(rollout, episodes, rewarded, timer)
            if is_warming_up:
                check_warmup_budget(self.config, self.num_turns, self.num_tokens)
        self.last_metrics = metrics
        return episodes, dict(metrics)

    @contextmanager
    def errors_annotated(self, updates_ahead: int = 0) -> Iterator[None]:
        """Add the number of the update to errors that are raised inside the block.

        Args:
            updates_ahead: 0 for the last update that is done, 1 for the next one.
        """
        try:
            yield
        except EnvironmentFault as fault:
            fault.update = self.update + updates_ahead
            raise
        except Divergence as divergence:
            divergence.update = self.update + updates_ahead
            divergence.metrics = self.last_metrics
            learners = [self.learners[agent] for agent in divergence.agents if agent in self.learners]
            if learners and divergence.learning_rate is None:
                divergence.learning_rate = max(learner.optimizer.learning_rate for learner in learners)
            raise

    def _advance(
        self, rollout: Rollout, episodes: Sequence[Episode], rewarded: RewardedEpisodes, timer: Timer
    ) -> dict[str, float]:
        """Count the update; returns metrics of its cost."""
        metrics = {f"seconds/{phase}": seconds for phase, seconds in rollout.seconds.items()}
        if rollout.faults:
            metrics["skipped_episodes"] = float(len(rollout.faults))
        if self.config.max_staleness:
            metrics["staleness"] = float(np.mean([self.update - episode.version for episode in episodes]))
            metrics["seconds/waiting"] = timer.seconds["rollout"]
        num_tokens = sum(len(turn.completion.logprobs) for e in episodes for t in e.tracks.values() for turn in t)
        self.update += 1
        self.num_turns += sum(episode.num_turns for episode in episodes) + rewarded.num_extra_turns
        self.num_tokens += num_tokens
        self.seconds += timer.total
        phases = {f"seconds/{phase}": timer.seconds[phase] for phase in ("credit", "critics", "policies")}
        return (
            metrics
            | phases
            | {
                "update": self.update,
                "environment_steps": self.num_turns,
                "sampled_tokens": self.num_tokens,
                "tokens_per_second": num_tokens / rollout.wall_s,
                "seconds/learning": timer.total - timer.seconds["rollout"],
                "seconds/update": timer.total,
                "seconds/total": self.seconds,
            }
        )

    def close(self) -> None:
        """Close the rollout worker and the environments."""
        self.source.close()
        self.collector.vector.close()

    @contextmanager
    def whole(self) -> Iterator[None]:
        """Inside the block rank 0 has all weights and moments, also if ranks hold shards (collective)."""
        with ExitStack() as stack:
            for learner in self.unique_learners:
                stack.enter_context(learner.whole())
            for critic in self.unique_critics:
                stack.enter_context(critic.whole())
            yield

    def state_dict(self) -> dict[str, Any]:
        """State from which training resumes bit for bit. If ranks hold shards, call it inside `whole`."""
        return {
            "update": self.update,
            "num_turns": self.num_turns,
            "num_tokens": self.num_tokens,
            "seconds": self.seconds,
            "generator": self.generator.get_state(),
            "algorithm": self.algorithm.state_dict(),
            "collector": self.collector.state_dict(),
            **self.source.state_dict(self.update),
            "learners": {learner.agents[0]: learner.state_dict() for learner in self.unique_learners},
            "learner_of": {agent: learner.agents[0] for agent, learner in self.learners.items()},
            "critics": {critic.agents[0]: critic.state_dict() for critic in self.unique_critics},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from the result of `state_dict`."""
        self.update = state["update"]
        self.num_turns = state["num_turns"]
        self.num_tokens = state["num_tokens"]
        self.seconds = state["seconds"]
        self.generator.set_state(state["generator"])
        self.algorithm.load_state_dict(state.get("algorithm", {}))
        self.collector.load_state_dict(state["collector"])
        self.source.load_state_dict(state)
        for learner in self.unique_learners:
            learner.load_state_dict(state["learners"][learner.agents[0]])
        for critic in self.unique_critics:
            critic.load_state_dict(state["critics"][critic.agents[0]])
