"""MAAC, multi-agent actor-critic (CoLLM-CC): decentralized actors, one critic on the joint history."""

from __future__ import annotations

from typing import ClassVar, TypeVar, get_args

from .algorithm import ActorCritic, CriticReads
from .config import CriticKnowledge, MAACConfig

Settings = TypeVar("Settings", bound=MAACConfig)


class MAAC(ActorCritic[Settings]):
    """Actor-critic with TD errors r + discount * V(h') - V(h) of the joint history h.

    All agents of a joint turn share one advantage. Source: CoLLM-CC (arXiv:2601.21972). The reward is the team's: the
    mean over all agents, 0 for those that have left. The critic learns once per joint turn, not once per agent. It
    serves training only, so it may also read what the environment hides from the agents (`critic_input`).
    """

    critic_reads: ClassVar[CriticReads] = "joint"
    config: MAACConfig  # Settings narrows it

    @property
    def reads_truth(self) -> bool:
        return self.config.critic_input == "privileged"

    def check(self) -> None:
        super().check()
        if self.config.critic_input not in get_args(CriticKnowledge):
            raise ValueError(f"critic_input is one of {get_args(CriticKnowledge)}, got {self.config.critic_input!r}")
