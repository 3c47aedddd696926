"""An algorithm is its settings and its credit rule; the trainer owns everything else."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Generic, Literal, TypeVar

from torch import Tensor

from .advantages import critic_targets, estimated_advantages
from .config import ActorCriticConfig, TrainConfig
from .grids import Grid

CriticReads = Literal["nothing", "own", "joint"]
Settings = TypeVar("Settings", bound=TrainConfig)


class Algorithm(ABC, Generic[Settings]):
    """How a turn is credited.

    Args:
        config: its settings.

    Raises:
        ValueError: if settings contradict each other; the message says which and why.
    """

    critic_reads: ClassVar[CriticReads] = "nothing"
    centers_advantages: ClassVar[bool] = True
    """Whether normalization may move the mean: not where a baseline's own mean is the rule."""

    def __init__(self, config: Settings):
        self.config = config
        self.check()

    @abstractmethod
    def advantages(self, grid: Grid) -> Tensor:
        """[B, T] how much better each turn went than expected."""

    def check(self) -> None:
        """Refuse settings that contradict each other; overridden versions call this one too."""
        config = self.config
        positive = ("num_updates", "rollout_buffer_size", "num_generations", "ppo_epochs", "eval_num_samples")
        for name in positive:
            if getattr(config, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(config, name)}")
        if config.rollout_buffer_size % config.num_generations:
            raise ValueError(
                f"rollout_buffer_size={config.rollout_buffer_size} episodes cannot be split into groups of "
                f"num_generations={config.num_generations}; make it a multiple"
            )
        if config.turns_per_update is not None and config.num_generations > 1:
            raise ValueError(
                f"turns_per_update={config.turns_per_update} cuts episodes anywhere, but num_generations="
                f"{config.num_generations} rollouts of a task are compared whole; leave one of them out"
            )
        if not 0 <= config.discount <= 1:
            raise ValueError(f"discount must lie in 0..1, got {config.discount}")
        for agent, rate in {"": config.agent_learning_rate, **config.agent_learning_rates}.items():
            if rate < 0:
                raise ValueError(f"the learning rate {rate}{agent and ' of '}{agent} is negative; use 0 to freeze")
        if config.mini_batch_size is not None and config.mini_batch_size < 1:
            raise ValueError(f"mini_batch_size must be at least 1, or None for one step, got {config.mini_batch_size}")
        if config.reference_kl_in == "loss" and config.reference_kl_estimator == "k1":
            raise ValueError(
                "reference_kl_estimator='k1' in the loss does nothing: its gradient is zero on average; "
                "use 'k2' there, or reference_kl_in='reward'"
            )
        if config.clip_range is None and config.ppo_epochs > 1:
            raise ValueError(
                f"ppo_epochs={config.ppo_epochs} learns again from episodes of an older policy, which the plain policy "
                "gradient cannot; set clip_range (0.2 is usual), or ppo_epochs=1"
            )


class ActorCritic(Algorithm[Settings], ABC):
    """Credit from a critic: the estimator of the settings over its values."""

    config: ActorCriticConfig  # type: ignore[assignment]  # Settings narrows it

    def advantages(self, grid: Grid) -> Tensor:
        config = self.config
        if grid.action_values is not None:
            # Q(h, a) takes the place of the return; V(h), which does not know the action, is its baseline.
            return (grid.action_values - grid.values[:, :-1]) * grid.is_real
        return estimated_advantages(
            grid.rewards,
            grid.values,
            grid.is_real,
            config.discount,
            config.estimator,
            config.trace,
            config.num_steps,
        )

    def targets(self, grid: Grid) -> Tensor:
        """[B, T] what the critic should have said of a history, and of it with what was done there."""
        config = self.config
        return critic_targets(
            grid.rewards,
            grid.values,
            grid.is_real,
            config.discount,
            config.critic_target,
            config.trace,
            config.num_steps,
        )

    def check(self) -> None:
        super().check()
        config = self.config
        if not 0 <= config.trace <= 1:
            raise ValueError(f"trace must lie in 0..1, got {config.trace}")
        for name in ("critic_steps", "critic_batch_size", "critic_replay", "num_steps"):
            if getattr(config, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(config, name)}")
        if config.critic_learning_rate < 0:
            raise ValueError(f"the critic's learning rate {config.critic_learning_rate} is negative")
        if config.critic_warmup >= config.num_updates:
            raise ValueError(
                f"critic_warmup={config.critic_warmup} leaves no update for the policies of num_updates="
                f"{config.num_updates}; lower the one or raise the other"
            )
