"""An algorithm is its settings, its credit rule and its loss; the trainer owns everything else.

The credit rule is how an algorithm computes advantages: how much of an episode's outcome each turn is credited with. A
subclass overrides `advantages` always, and `loss`, `targets`, `state_dict` and the facts about itself (`critic_reads`,
`has_actor_heads`, …) where it differs from the defaults.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Literal, NamedTuple, TypeVar

from torch import Tensor

from ..agents.config import BAG_OF_WORDS
from .config import ActorCriticConfig, TrainConfig
from .functions.advantages import critic_targets, estimated_advantages
from .functions.losses import (
    clipped_policy_loss,
    importance_weights,
    policy_gradient_loss,
    token_advantages,
    turn_logprobs,
)
from .rollout.episode import Episode

DEFAULT_WARMUP = 5
CriticReads = Literal["nothing", "own", "joint"]
Settings = TypeVar("Settings", bound=TrainConfig)


@dataclass(frozen=True, slots=True)
class Grid:
    """Rewards and values that advantages are computed from, one row per track. Axes: B tracks, T turns.

    A row is the track of one agent in one episode (`Episode.tracks`), or the joint turns of one episode.
    """

    rewards: Tensor  # [B, T], after shaping
    values: Tensor  # [B, T + 1], before each turn and after the last; 0 after a terminal end, and without a critic
    action_values: Tensor | None  # [B, T] Q(h, a) of each turn; None where the critic gives V(h) alone
    is_real: Tensor  # [B, T] bool, True where a turn happened
    group: Tensor  # [B] long; the rollouts of one task share a group
    agent: str | None = None  # the agent whose turns these are; None: joint turns of the whole team
    episodes: Sequence[Episode] = ()  # [B], the episode of each row, with its texts, lengths and infos


@dataclass(frozen=True, slots=True)
class PolicyBatch:
    """Micro-batch that a policy's loss is computed from. Axes: N turns, K tokens of these turns in a row."""

    logprobs: Tensor  # [K] of the sampled tokens under the present weights, with gradient
    sampled_logprobs: Tensor  # [K] of the same tokens when they were sampled
    turn_of_token: Tensor  # [K] long, 0..N - 1
    advantages: Tensor  # [N]
    num_turns: int  # of the whole mini-batch: the denominator of a loss per turn (see TrainConfig.loss_denominator)
    num_tokens: int  # of the whole mini-batch: the denominator of a loss per token
    is_off_policy: Tensor | None = None  # [N] bool: sampled by older weights, or in other arithmetic; None: none


class PolicyLoss(NamedTuple):
    """A loss and its logged metrics.

    Both are summed over the micro-batches of a mini-batch: divide by the counts of the whole mini-batch.
    """

    loss: Tensor  # scalar, with gradient
    metrics: Mapping[str, Tensor]  # scalars, without


class Algorithm(ABC, Generic[Settings]):
    """A credit rule and a policy loss.

    Args:
        config: the algorithm's settings.

    Raises:
        ValueError: if settings contradict each other; the message says which and why.
    """

    critic_reads: ClassVar[CriticReads] = "nothing"
    """History that a critic values: each agent's "own", the "joint" one, or "nothing" where there is no critic."""
    centers_advantages: ClassVar[bool] = True
    """Normalization subtracts the mean of the advantages. False: it only scales them, as the baseline sets the mean."""

    has_baseline: ClassVar[bool] = True
    """Advantages lie around 0. False: they are returns, whose policy gradient is wrong before top-k and top-p."""
    may_repeat_unclipped: ClassVar[bool] = False
    """Several epochs without `clip_range` are a warning. False: an error."""

    def __init__(self, config: Settings):
        self.config = config
        self.check()

    @abstractmethod
    def advantages(self, grid: Grid) -> Tensor:
        """[B, T] advantages: how much better each turn went than expected.

        Called once per update and agent, or once per update for the team where the critic reads the joint history.
        """

    def targets(self, grid: Grid) -> Tensor:
        """[B, T] regression targets of the critic: the discounted return from each history on.

        Called only where there is a critic.
        """
        return critic_targets(grid.rewards, grid.values, grid.is_real, self.config.discount, "monte_carlo")

    def loss(self, batch: PolicyBatch) -> PolicyLoss:
        """The policy's loss: the policy gradient, or PPO's clipped surrogate where `clip_range` is set.

        Episodes of older weights (`max_staleness`), and those with a server's own log-probabilities
        (`server_logprobs`), enter the policy gradient with truncated importance weights; PPO's ratio is to the policy
        that sampled, and needs no other.

        The policy learner adds the entropy bonus, the KL penalty and the loss of a value head.
        """
        config = self.config
        if config.credit == "turn":
            items, num_turns = batch.num_turns, len(batch.advantages)
            logprobs, sampled = (
                turn_logprobs(each, batch.turn_of_token, num_turns, average_over_tokens=config.divide_by_length)
                for each in (batch.logprobs, batch.sampled_logprobs)
            )
            advantages = batch.advantages
        else:
            # Weighting each token by 1 / length makes every completion count as one item.
            items = batch.num_turns if config.divide_by_length else batch.num_tokens
            logprobs, sampled = batch.logprobs, batch.sampled_logprobs
            advantages = token_advantages(
                batch.advantages, batch.turn_of_token, divide_by_length=config.divide_by_length
            )
        num_items = batch.num_turns if config.credit == "turn" else batch.num_tokens
        if config.clip_range is None:
            metrics: dict[str, Tensor] = {}
            if batch.is_off_policy is not None and config.importance_cap is not None:
                is_off = batch.is_off_policy if config.credit == "turn" else batch.is_off_policy[batch.turn_of_token]
                weights, num_capped = importance_weights(logprobs, sampled, is_off, config.importance_cap)
                advantages = advantages * weights
                metrics["importance_weight"] = weights.double().sum() / num_items
                metrics["importance_capped"] = num_capped.double() / num_items
            return PolicyLoss(policy_gradient_loss(logprobs, advantages, items), metrics)
        loss, num_clipped = clipped_policy_loss(
            logprobs, sampled, advantages, items, config.clip_range, config.clip_range_high
        )
        return PolicyLoss(loss, {"clip_fraction": num_clipped.double() / num_items})

    @property
    def has_actor_heads(self) -> bool:
        """Whether the critics are value heads on the actors, trained with them."""
        return False

    @property
    def reads_truth(self) -> bool:
        """Whether the critic also reads what the environment hides from the agents."""
        return False

    @property
    def crosses_rollouts(self) -> bool:
        """Whether a completion is scored with every completion of the others in its group."""
        return False

    @property
    def critic_warmup(self) -> int:
        """Updates at the start in which only a separate critic learns."""
        return 0

    def warms_up(self, update: int, metrics: Mapping[str, float]) -> bool:
        """Whether only a separate critic learns from an update's episodes; asked once per update, in their order.

        Args:
            update: updates done before.
            metrics: of the critic, before it learned from these episodes.
        """
        return update < self.critic_warmup

    def state_dict(self) -> dict[str, Any]:
        """State that the algorithm keeps between updates: tensors, numbers, strings, and lists and dicts of them.

        Every checkpoint saves it.
        """
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned; an algorithm with state overrides both."""

    def check(self) -> None:
        """Refuse settings that contradict each other; overridden versions call this one too."""
        config = self.config
        if self.critic_reads != "nothing" and not isinstance(config, ActorCriticConfig):
            raise ValueError(
                f"{type(self).__name__} has a critic (critic_reads={self.critic_reads!r}), but its settings "
                f"{type(config).__name__} have none for one; derive them from ActorCriticConfig"
            )
        if self.critic_reads == "joint" and config.credited_reward == "own":
            raise ValueError(
                f"credited_reward='own' needs a critic per agent or none, but {type(self).__name__} has a joint one, "
                "which learns the team's reward; leave credited_reward out, or use iac, ippo or magrpo"
            )
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
        if config.reference_kl_in == "loss" and config.reference_kl_estimator == "k1":
            raise ValueError(
                "reference_kl_estimator='k1' in the loss does nothing: its gradient is zero on average; "
                "use 'k2' there, or reference_kl_in='reward'"
            )
        if config.clip_range_high is not None and config.clip_range is None:
            raise ValueError(
                f"clip_range_high={config.clip_range_high} is the upper side of a clip that is off; set clip_range "
                "too (0.2 is usual)"
            )
        if config.clip_range is None and config.ppo_epochs > 1:
            fault = (
                f"ppo_epochs={config.ppo_epochs} learns again from episodes of an older policy, which the plain policy "
                "gradient cannot; set clip_range (0.2 is usual), or ppo_epochs=1"
            )
            if not self.may_repeat_unclipped:
                raise ValueError(fault)
            warnings.warn(fault, stacklevel=2)


class ActorCritic(Algorithm[Settings], ABC):
    """Advantages from a critic's values, by the estimator that the settings name."""

    config: ActorCriticConfig  # type: ignore[assignment]  # Settings narrows it
    _warmup: int | None = None  # of the run that was resumed

    def advantages(self, grid: Grid) -> Tensor:
        config = self.config
        if grid.action_values is not None:
            # Q(h, a) replaces the return; V(h), which does not depend on the action, is the baseline.
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
        """[B, T] regression targets of the critic, the same for V(h) and Q(h, a)."""
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

    @property
    def critic_warmup(self) -> int:
        if self.has_actor_heads:
            return 0
        return warmup_of(self.config) if self._warmup is None else self._warmup

    def state_dict(self) -> dict[str, Any]:
        return {"critic_warmup": self.critic_warmup}  # a prolonged run has more updates, but no second warm-up

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._warmup = state.get("critic_warmup")

    def check(self) -> None:
        super().check()
        config = self.config
        if self.critic_warmup >= config.num_updates:
            raise ValueError(
                f"critic_warmup={config.critic_warmup} leaves no update for the policies of num_updates="
                f"{config.num_updates}; lower the one or raise the other"
            )
        if config.critic_model_name_or_path == BAG_OF_WORDS and not self.has_actor_heads:
            if config.critic_type == "q":
                raise ValueError(
                    f"critic_model_name_or_path={BAG_OF_WORDS!r} values histories, not actions; use critic_type='v', "
                    "or another critic"
                )
            if config.turns_per_update is not None:
                raise ValueError(
                    f"critic_model_name_or_path={BAG_OF_WORDS!r} counts turns from an episode's beginning, but "
                    f"turns_per_update={config.turns_per_update} cuts episodes anywhere; leave one of them out"
                )
        least = config.rollout_buffer_size if config.turns_per_update is None else config.turns_per_update
        if not self.has_actor_heads:  # an episode has at least one step and one token
            check_warmup_budget(config, self.critic_warmup * least, self.critic_warmup * least)


def warmup_of(config: ActorCriticConfig) -> int:
    """Updates of the critic's warm-up: `critic_warmup`, or the default that leaves updates for the policies."""
    if config.critic_warmup is not None:
        return config.critic_warmup
    return DEFAULT_WARMUP if config.num_updates > DEFAULT_WARMUP else config.num_updates // 2


def check_warmup_budget(config: ActorCriticConfig, num_steps: int, num_tokens: int) -> None:
    """Refuse a budget that the critic's warm-up uses up: no policy would learn.

    Args:
        num_steps: environment steps that the warm-up takes, or at least takes.
        num_tokens: sampled tokens that it takes, or at least takes.

    Raises:
        ValueError: naming the budget.
    """
    for name, used in (("max_environment_steps", num_steps), ("max_sampled_tokens", num_tokens)):
        limit = getattr(config, name)
        if limit is not None and used >= limit:
            raise ValueError(
                f"critic_warmup={warmup_of(config)} updates use up {name}={limit} before any policy learns; lower "
                "the one or raise the other"
            )
