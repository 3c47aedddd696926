"""MAAC, multi-agent actor-critic (CoLLM-CC): decentralized actors, one critic on the joint history."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, TypeVar

from .algorithm import ActorCritic, CriticReads
from .config import ActorCriticConfig


@dataclass(frozen=True, kw_only=True)
class MAACConfig(ActorCriticConfig):
    """Settings of MAAC."""


Settings = TypeVar("Settings", bound=MAACConfig)


class MAAC(ActorCritic[Settings]):
    """delta = r + discount * V(h') - V(h) with the joint history h, one advantage for all agents of a joint turn.

    Source: CoLLM-CC (arXiv:2601.21972). The reward is the team's: the mean over the agents that moved. The critic takes
    one step for a joint turn, not one for each agent, and is needed in training only.
    """

    critic_reads: ClassVar[CriticReads] = "joint"
