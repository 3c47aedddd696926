"""IAC, independent actor-critic (CoLLM-DC): each agent learns alone, with a critic on its own history."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, TypeVar

from .algorithm import ActorCritic, CriticReads
from .config import ActorCriticConfig


@dataclass(frozen=True, kw_only=True)
class IACConfig(ActorCriticConfig):
    """Settings of IAC."""

    use_separate_critic: bool = True
    """A model of its own for each critic; False: a value head on each actor, trained with it."""


Settings = TypeVar("Settings", bound=IACConfig)


class IAC(ActorCritic[Settings]):
    """delta = r + discount * V_i(h_i') - V_i(h_i), or its traces; the other agents are part of the world.

    Source: CoLLM-DC (arXiv:2601.21972). It needs no joint information even in training. Where an agent's own history
    does not tell how the team stands, its critic cannot either, and its advantages stay as noisy as returns.
    """

    critic_reads: ClassVar[CriticReads] = "own"
    config: IACConfig  # Settings narrows it

    def check(self) -> None:
        super().check()
        if not self.config.use_separate_critic and self.config.critic_type == "q":
            raise ValueError(
                "critic_type='q' needs use_separate_critic=True: a head on the actor reads the prompt, "
                "before there is an action to value"
            )
