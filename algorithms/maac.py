"""MAAC, multi-agent actor-critic (CoLLM-CC): decentralized actors, one critic on the joint history."""

from __future__ import annotations

from typing import ClassVar, TypeVar

from .algorithm import ActorCritic, CriticReads
from .config import MAACConfig

Settings = TypeVar("Settings", bound=MAACConfig)


class MAAC(ActorCritic[Settings]):
    """Multi-agent actor-critic: decentralized actors and a critic V(h) on the joint history h.

    The advantage is a weighted sum of TD errors r + discount * V(h') - V(h), by default GAE (`estimator`); the paper
    uses one TD error. With `credited_reward="team"`, all agents of a joint turn share one advantage, and the reward is
    the mean over all agents, with 0 for agents that have left. With "own", the critic has one value V_i(h) per agent,
    which is 0 after the agent has left. The critic may also read the hidden state of the environment (`critic_input`),
    because only training needs the critic. Source: CoLLM-CC (arXiv:2601.21972).
    """

    critic_reads: ClassVar[CriticReads] = "joint"
    config: MAACConfig  # narrows the type of the base class

    @property
    def reads_truth(self) -> bool:
        return self.config.critic_input == "privileged"
