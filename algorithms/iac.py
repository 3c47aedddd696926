"""IAC, independent actor-critic (CoLLM-DC): each agent has a critic on its own history."""

from __future__ import annotations

from typing import ClassVar, TypeVar

from .algorithm import ActorCritic, CriticReads
from .config import IACConfig

Settings = TypeVar("Settings", bound=IACConfig)


class IAC(ActorCritic[Settings]):
    """Independent actor-critic: each agent i has a critic V_i(h_i) on its own history h_i.

    The advantage is a weighted sum of TD errors r + discount * V_i(h_i') - V_i(h_i), by default GAE (`estimator`). The
    other agents are part of the environment. If an agent's history does not show the state of the team, the critic
    predicts the return poorly. Source: CoLLM-DC (arXiv:2601.21972).
    """

    critic_reads: ClassVar[CriticReads] = "own"
    config: IACConfig  # narrows the type of the base class

    @property
    def has_actor_heads(self) -> bool:
        return not self.config.use_separate_critic

    def check(self) -> None:
        super().check()
        if not self.config.use_separate_critic and self.config.critic_type == "q":
            raise ValueError(
                "critic_type='q' needs use_separate_critic=True: a value head on the actor does not read the action"
            )
