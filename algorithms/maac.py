"""MAAC, multi-agent actor-critic (CoLLM-CC): decentralized actors, one critic on the joint history."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, TypeVar, get_args

from .algorithm import ActorCritic, CriticReads
from .config import ActorCriticConfig

CriticInput = Literal["joint", "privileged"]


@dataclass(frozen=True, kw_only=True)
class MAACConfig(ActorCriticConfig):
    """Settings of MAAC."""

    critic_input: CriticInput = "joint"
    """What the critic reads: "joint", all that the agents read and wrote; "privileged", besides what the environment
    knows and hides from them (`TextParallelEnv.truth`; for vectors the environment's own state)."""


Settings = TypeVar("Settings", bound=MAACConfig)


class MAAC(ActorCritic[Settings]):
    """delta = r + discount * V(h') - V(h) with the joint history h, one advantage for all agents of a joint turn.

    Source: CoLLM-CC (arXiv:2601.21972). The reward is the team's: the mean over the agents that moved. The critic takes
    one step for a joint turn, not one for each agent. It is needed in training only, so it may be told what is hidden
    from the agents (`critic_input`).
    """

    critic_reads: ClassVar[CriticReads] = "joint"
    config: MAACConfig  # Settings narrows it

    def check(self) -> None:
        super().check()
        if self.config.critic_input not in get_args(CriticInput):
            raise ValueError(f"critic_input is one of {get_args(CriticInput)}, got {self.config.critic_input!r}")
