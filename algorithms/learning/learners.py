"""Learners of a team: one per distinct policy and critic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import torch

from ...agents.core import Policy, TrainablePolicy
from ..algorithm import Algorithm
from ..config import TrainConfig
from ..rollout.requests import Weights
from .critic_learner import CriticLearner
from .policy_learner import PolicyLearner

LearnerT = TypeVar("LearnerT", PolicyLearner, CriticLearner)


def make_learners(
    algorithm: Algorithm[Any], policies: Mapping[str, Policy], generator: torch.Generator
) -> dict[str, PolicyLearner]:
    """Make one learner per trainable policy; returns the learner of each agent. Agents may share a policy.

    `generator` samples the order of mini-batches. Raises `ValueError` if no policy can learn, a learning rate is for an
    unknown agent, or two rates are for one policy.
    """
    rates = agent_learning_rates(algorithm.config, list(policies))
    by_policy: dict[TrainablePolicy, PolicyLearner] = {}
    learners: dict[str, PolicyLearner] = {}
    for agent, policy in policies.items():
        if not isinstance(policy, TrainablePolicy):  # a scripted policy does not learn
            continue
        learner = by_policy.get(policy)
        if learner is None:
            learner = by_policy[policy] = PolicyLearner(policy, algorithm, generator, rates[agent])
        elif rates[agent] not in (None, learner.optimizer.learning_rate):
            raise ValueError(
                f"agent_learning_rates={rates[agent]} of {agent!r} differs from {learner.optimizer.learning_rate} of "
                "an agent that shares its weights; give agents with shared weights the same rate"
            )
        learners[agent] = learner
    if not learners:
        raise ValueError("no policy of the collector can learn; pass at least one TrainablePolicy")
    return learners


def distinct(learners: Mapping[str, LearnerT]) -> list[LearnerT]:
    """Set the `agents` of each learner; returns each learner once."""
    found = list(dict.fromkeys(learners.values()))
    for learner in found:
        learner.agents = [agent for agent, each in learners.items() if each is learner]
    return found


def agent_learning_rates(config: TrainConfig, agents: Sequence[str]) -> dict[str, float | None]:
    """Return the learning rate of each agent's policy. None: the policy's own default.

    Raises `ValueError` if `agent_learning_rates` contains an agent that the environment does not have.
    """
    unknown = [name for name in config.agent_learning_rates if name not in agents]
    if unknown:
        raise ValueError(f"agent_learning_rates names {unknown}, but the agents are {list(agents)}")
    return {agent: config.agent_learning_rates.get(agent, config.agent_learning_rate) for agent in agents}


def policy_weights(learners: Sequence[PolicyLearner]) -> Weights:
    return {
        learner.agents[0]: {key: value.detach().cpu().clone() for key, value in learner.policy.state_dict().items()}
        for learner in learners
    }
