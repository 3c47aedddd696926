"""Published settings of algorithms, which differ from an implemented algorithm only in these settings.

CoLLM-CC and CoLLM-DC: settings from the paper (arXiv:2601.21972) and its code. The paper collects 1 to 8 episodes per
update, and uses a learning rate of 2.5e-6 on StrBuild. Temperature 0.6 and top-p 0.6 are settings of the model. Errors
of the published code are not reproduced: padding in the loss, one critic step per agent, weights in bfloat16, and a
gradient that ignores the temperature.

GRPO's descendants: advantages, clip ranges and denominators from the papers. Batch sizes and learning rates stay those
of this library, because the papers train larger models.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .._ranges import Advanced, Share
from .config import ActorCriticConfig, AdvantageNormalization, Estimator, IACConfig, MAACConfig, ReinforceConfig


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


@dataclass(frozen=True, kw_only=True)
class GRPOConfig(ReinforceConfig):
    """Settings of GRPO (arXiv:2402.03300): advantages in standard deviations, a clipped ratio and loss per token."""

    credit: Literal["turn", "token"] = "token"
    clip_range: float | None = 0.2
    divide_by_length: bool = True
    divide_by_std: bool = True
    loss_denominator: Literal["fixed", "sampled"] = "sampled"
    advantage_normalization: AdvantageNormalization = "none"


@dataclass(frozen=True, kw_only=True)
class DrGRPOConfig(GRPOConfig):
    """Settings of Dr. GRPO (arXiv:2503.20783): no standard deviation, and a constant denominator of the loss."""

    divide_by_length: bool = False
    divide_by_std: bool = False
    loss_denominator: Literal["fixed", "sampled"] = "fixed"


@dataclass(frozen=True, kw_only=True)
class DAPOConfig(GRPOConfig):
    """Settings of DAPO (arXiv:2503.14476): clip-higher, and the mean loss over all tokens of a mini-batch.

    The paper's dynamic sampling and its penalty of long completions are left out.
    """

    num_generations: int = 16
    clip_range_high: float | None = 0.28
    divide_by_length: bool = False
    mini_batch_size: int | None = 8


@dataclass(frozen=True, kw_only=True)
class GSPOConfig(GRPOConfig):
    """Settings of GSPO (arXiv:2507.18071): one ratio per completion, (pi / pi at sampling)^(1 / tokens)."""

    credit: Literal["turn", "token"] = "turn"
    clip_range: float | None = 3e-4
    clip_range_high: float | None = 4e-4
    mini_batch_size: int | None = 8


@dataclass(frozen=True, kw_only=True)
class ATGRPOConfig(GRPOConfig):
    """Settings of AT-GRPO (arXiv:2510.11062): the reward of a turn is compared per task, agent and turn.

    The paper also samples all completions of a group after the same history and continues with the best one. Here, the
    rollouts of a task are independent, and the histories of their later turns differ.
    """

    num_generations: int = 4
    discount: float = 0.0


@dataclass(frozen=True, kw_only=True)
class RAEConfig(ReinforceConfig):
    """Settings of RAE."""

    num_generations: int = 1
    advantage_normalization: AdvantageNormalization = "none"
    baseline_decay: Advanced[Share] = 0.95
    """Decay of each agent's moving average of returns, 0..1."""


@dataclass(frozen=True, kw_only=True)
class COMAConfig(MAACConfig):
    """Settings of COMA. The baseline needs the critic's Q(h, a)."""

    critic_type: Advanced[Literal["q"]] = "q"
