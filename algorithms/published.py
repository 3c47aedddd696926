"""The published settings of CoLLM-CC and CoLLM-DC (arXiv:2601.21972), as far as the paper and its library give them.

They are here to be compared with: one-step temporal differences from bootstrapped targets, advantages normalized turn
by turn, no trace, no replay, no warm-up, critics made from the actor. The published sampling (temperature 0.6, top-p
0.6) belongs to the model's settings. Where the original has a fault that this library does not share (padding in the
loss, a critic step for each agent, weights in bfloat16, a gradient that ignores the temperature), it is not brought
back.
"""

from __future__ import annotations

from dataclasses import dataclass

from .advantages import Estimator
from .config import ActorCriticConfig, AdvantageNormalization
from .iac import IACConfig
from .maac import MAACConfig


@dataclass(frozen=True, kw_only=True)
class PublishedConfig(ActorCriticConfig):
    """What both methods were published with."""

    rollout_buffer_size: int = 8
    """Episodes collected for each update; the paper's tasks use 1 to 8."""
    agent_learning_rate: float = 5e-6
    """Of AdamW, for policies; 2.5e-6 for StrBuild."""
    weight_decay: float = 0.01
    """Of AdamW."""
    max_grad_norm: float = 1e9
    """Gradients of a policy (of a critic) longer than this are shortened to it: none."""
    advantage_normalization: AdvantageNormalization = "agent_turn"
    """Bring advantages to mean 0 and deviation 1: over all agents and turns ("batch"), each agent's, each turn's, each
    turn's of each agent; or not."""
    estimator: Estimator = "td"
    """Of advantages: td (one step), n_step, gae, monte_carlo."""
    critic_target: Estimator = "td"
    """What the critic learns to predict, made by that estimator."""
    critic_learning_rate: float = 5e-6
    """Of AdamW, for critics of their own."""
    value_normalization: bool = False
    """Let the critic predict in units of the running mean and deviation of its targets."""
    critic_steps: int = 1
    """Optimizer steps of a critic of its own in an update."""
    critic_replay: int = 1
    """Updates whose episodes a critic of its own goes on learning from."""
    critic_warmup: int = 0
    """Updates at the start in which only a critic of its own learns."""
    critic_model_name_or_path: str = "actor"
    """Body of a critic of its own; "actor": the first actor's weights and tokenizer."""


@dataclass(frozen=True, kw_only=True)
class CoLLMCCConfig(PublishedConfig, MAACConfig):
    """MAAC as published: a centralized critic."""


@dataclass(frozen=True, kw_only=True)
class CoLLMDCConfig(PublishedConfig, IACConfig):
    """IAC as published: decentralized critics, models of their own."""
