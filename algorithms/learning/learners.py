"""Learners of a team: one per distinct policy and critic, their batches, weights and references."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

from ...agents.core import Policy, TrainablePolicy
from ...envs.vectors.vector import VectorEnv
from ..algorithm import Algorithm
from ..config import TrainConfig
from ..rollout.episode import Episode
from ..rollout.requests import Weights
from .credit import Credit
from .critic_learner import CriticBatch, CriticLearner
from .policy_learner import PolicyLearner, TurnBatch, tracks_of

LearnerT = TypeVar("LearnerT", PolicyLearner, CriticLearner)


def make_learners(
    algorithm: Algorithm[Any], policies: Mapping[str, Policy], generator: torch.Generator
) -> dict[str, PolicyLearner]:
    """One learner per policy that learns, by each agent that plays the policy.

    Args:
        algorithm: source of the settings.
        policies: policy of each agent; agents may share one.
        generator: source of the order of mini-batches.

    Raises:
        ValueError: if no policy can learn, or a learning rate contradicts another one or names no agent.
    """
    rates = agent_learning_rates(algorithm.config, list(policies))
    by_policy: dict[TrainablePolicy, PolicyLearner] = {}
    learners: dict[str, PolicyLearner] = {}
    for agent, policy in policies.items():
        if not isinstance(policy, TrainablePolicy):  # a scripted partner does not learn
            continue
        learner = by_policy.get(policy)
        if learner is None:
            learner = by_policy[policy] = PolicyLearner(policy, algorithm, generator, rates[agent])
        elif rates[agent] not in (None, learner.optimizer.learning_rate):
            raise ValueError(
                f"agent_learning_rates gives {agent!r} {rates[agent]}, but it shares its weights with another "
                f"that learns at {learner.optimizer.learning_rate}; give all who share the same rate"
            )
        learners[agent] = learner
    if not learners:
        raise ValueError("no policy of the collector can learn; give at least one TrainablePolicy")
    return learners


def distinct(learners: Mapping[str, LearnerT]) -> list[LearnerT]:
    """Each learner once, after setting its `agents`."""
    found = list(dict.fromkeys(learners.values()))
    for learner in found:
        learner.agents = [agent for agent, each in learners.items() if each is learner]
    return found


def agent_learning_rates(config: TrainConfig, agents: Sequence[str]) -> dict[str, float | None]:
    """Learning rate of each agent's policy. None: the policy's own default.

    Raises:
        ValueError: if a rate is given for an agent that the environment does not have.
    """
    unknown = [name for name in config.agent_learning_rates if name not in agents]
    if unknown:
        raise ValueError(f"agent_learning_rates names {unknown}, but the agents are {list(agents)}")
    return {agent: config.agent_learning_rates.get(agent, config.agent_learning_rate) for agent in agents}


def policy_weights(learners: Sequence[PolicyLearner]) -> Weights:
    """A copy of the present weights of policies, on the CPU."""
    return {
        learner.agents[0]: {key: value.detach().cpu().clone() for key, value in learner.policy.state_dict().items()}
        for learner in learners
    }


def reference_logprobs(
    config: TrainConfig,
    learners: Mapping[str, PolicyLearner],
    references: Mapping[str, TrainablePolicy],
    episodes: Sequence[Episode],
) -> dict[str, list[Tensor]]:
    """Log-probabilities of the sampled tokens under the references, by agent and track; empty without a KL penalty."""
    if not config.reference_kl_coef:
        return {}
    return {
        agent: learner.logprobs(references[agent], tracks_of(episodes, agent)) for agent, learner in learners.items()
    }


def policy_batch(
    learner: PolicyLearner,
    episodes: Sequence[Episode],
    credits: Mapping[str, Credit],
    references: Mapping[str, Sequence[Tensor]],
    critic_batches: Sequence[CriticBatch],
    max_turns: int,
    update: int,
) -> TurnBatch:
    """The turns that a policy learns from.

    Args:
        learner: learner of the policy.
        episodes: episodes of the update.
        credits: credit of the episodes, by agent.
        references: result of `reference_logprobs`.
        critic_batches: batches that the critics have learned from; one of them may be the policy's value head.
        max_turns: result of `max_joint_turns`.
        update: number of updates done.
    """
    agents = [agent for agent in learner.agents if agent in credits]
    targets = old_values = None
    for batch in critic_batches:
        if batch.critic.is_actor_head and agents[0] in batch.critic.agents:
            # Targets are in units of the moments after these targets, values in units of the moments before them.
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
    """Largest number of joint turns that these episodes can have; it does not depend on sampled actions.

    An episode of an environment without a turn limit counts as one. With `turns_per_update` the number is fixed.
    """
    if config.turns_per_update is not None:
        return sum(episode.num_turns for episode in episodes)
    return len(episodes) * (vector.turn_limit or 1)
