"""Published settings of CoLLM-CC and CoLLM-DC (arXiv:2601.21972), from the paper and its code.

The paper collects 1 to 8 episodes per update, and uses a learning rate of 2.5e-6 on StrBuild. Temperature 0.6 and top-p
0.6 are settings of the model. Errors of the published code are not reproduced: padding in the loss, one critic step per
agent, weights in bfloat16, and a gradient that ignores the temperature.
"""

from __future__ import annotations

from dataclasses import dataclass

from .config import ActorCriticConfig, AdvantageNormalization, Estimator, IACConfig, MAACConfig


@dataclass(frozen=True, kw_only=True)
class PublishedConfig(ActorCriticConfig):
    """Default settings that CoLLM-CC and CoLLM-DC share, as published."""

    rollout_buffer_size: int = 8
    agent_learning_rate: float | None = 5e-6
    weight_decay: float = 0.01
    max_grad_norm: float = 1e9
    advantage_normalization: AdvantageNormalization = "agent_turn"
    estimator: Estimator = "td"
    critic_target: Estimator = "td"
    critic_learning_rate: float = 5e-6
    value_normalization: bool = False
    critic_steps: int = 1
    critic_replay: int = 1
    critic_warmup: int | None = 0
    critic_model_name_or_path: str = "actor"


@dataclass(frozen=True, kw_only=True)
class CoLLMCCConfig(PublishedConfig, MAACConfig):
    """Settings of MAAC as published for CoLLM-CC: a centralized critic."""


@dataclass(frozen=True, kw_only=True)
class CoLLMDCConfig(PublishedConfig, IACConfig):
    """Settings of IAC as published for CoLLM-DC: decentralized critics, separate models."""
