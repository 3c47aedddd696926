"""Base class of all algorithms: settings, a credit rule and a loss. `Trainer` runs the training step."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Generic, Literal, NamedTuple, TypeVar

from torch import Tensor

from ..agents.config import BAG_OF_WORDS
from ..agents.core import Policy
from ..envs.core import Interests
from ..envs.vectors.vector import VectorEnv
from .config import ActorCriticConfig, TrainConfig
from .functions.advantages import Discount, critic_targets, estimated_advantages
from .functions.losses import (
    clipped_policy_loss,
    importance_weights,
    policy_gradient_loss,
    token_advantages,
    turn_logprobs,
)
from .rollout.collector import RolloutCollector
from .rollout.episode import Episode

DEFAULT_WARMUP = 5
CriticReads = Literal["nothing", "own", "joint"]
Settings = TypeVar("Settings", bound=TrainConfig)


@dataclass(frozen=True, slots=True)
class Grid:
    """Inputs of the advantage computation: rewards and values, padded to equal lengths. Axes: B tracks, T turns.

    A track is the sequence of one agent's turns in an episode (`Episode.tracks`), or of the episode's joint turns.
    """

    rewards: Tensor  # [B, T], after shaping
    values: Tensor  # [B, T + 1] V(h) before each turn and after the last turn; 0 after termination or without critic
    action_values: Tensor | None  # [B, T] Q(h, a) of each turn; None if the critic predicts only V(h)
    is_real: Tensor  # [B, T] bool, True for turns, False for padding
    group: Tensor  # [B] long, index of the group; a group consists of the rollouts of one task
    agent: str | None = None  # agent whose rewards and values these are; None: those of the whole team
    episodes: Sequence[Episode] = ()  # [B], the episode of each row
    gaps: Tensor | None = None  # [B, T] joint turns from each turn to the track's next; None: 1, as no agent waits

    def discounts(self, discount: float) -> Discount:
        """Return the discount from each turn to the next: `discount`, or `discount ** gaps` if agents wait."""
        return discount if self.gaps is None else discount**self.gaps


@dataclass(frozen=True, slots=True)
class PolicyBatch:
    """Inputs of a policy's loss for one micro-batch. Axes: N turns; K tokens of these turns, concatenated."""

    logprobs: Tensor  # [K] log-probabilities of the sampled tokens under the current weights, with gradient
    sampled_logprobs: Tensor  # [K] log-probabilities of the tokens under the weights that sampled the tokens
    turn_of_token: Tensor  # [K] long, index of each token's turn, 0..N - 1
    advantages: Tensor  # [N] advantage of each turn
    num_turns: int  # turns of the mini-batch: the denominator of a loss per turn (see TrainConfig.loss_denominator)
    num_tokens: int  # tokens of the mini-batch: the denominator of a loss per token
    is_off_policy: Tensor | None = None  # [N] bool, True if older weights or a server sampled the turn; None: all False


class PolicyLoss(NamedTuple):
    """Loss and metrics of a micro-batch, divided by the number of turns or tokens of the whole mini-batch."""

    loss: Tensor  # scalar, with gradient
    metrics: Mapping[str, Tensor]  # scalars, without gradient


class Algorithm(ABC, Generic[Settings]):
    """Base class of all algorithms: a credit rule and a policy loss.

    A subclass overrides `advantages`, and other methods and properties only if they differ from the defaults. Raises
    `ValueError` if settings in `config` contradict each other.
    """

    critic_reads: ClassVar[CriticReads] = "nothing"
    """History that the critic evaluates: each agent's "own" history, the "joint" history, or "nothing" (no critic)."""
    centers_advantages: ClassVar[bool] = True
    """True: normalization subtracts the mean advantage. False: normalization only divides by a scale."""
    has_baseline: ClassVar[bool] = True
    """False: advantages are returns without a baseline. Sampling with top-k or top-p then gives a wrong gradient."""
    reads_shares: ClassVar[bool] = False
    """True if training episodes are replayed without each agent; see `envs.wrappers.Shares`."""
    may_repeat_unclipped: ClassVar[bool] = False
    """True: several epochs without `clip_range` cause a warning. False: they raise an error."""
    advantage_limit: float = 1.0  # mean of `baselines.advantage_limits` in the last update

    def __init__(self, config: Settings):
        self.config = config
        self.return_spreads: list[float] = []  # of the last updates, whose returns critics learn from
        self.check()

    @abstractmethod
    def advantages(self, grid: Grid) -> Tensor:
        """Return advantages [B, T]: how much better each turn was than expected.

        Called once per update and agent; once per update with a joint critic of the team's reward.
        """

    def make_collector(self, vector: VectorEnv, policies: Mapping[str, Policy], **options: Any) -> RolloutCollector:
        """Make the collector of training episodes. `options` are further arguments of `RolloutCollector`."""
        return RolloutCollector(vector, policies, **options)

    def targets(self, grid: Grid) -> Tensor:
        """Return the critic's regression targets [B, T]: the discounted return from each turn to the end."""
        return critic_targets(
            grid.rewards, grid.values, grid.is_real, grid.discounts(self.config.discount), "monte_carlo"
        )

    def loss(self, batch: PolicyBatch) -> PolicyLoss:
        """Compute the policy's loss: PPO's clipped surrogate if `clip_range` is set, else the policy-gradient loss.

        With `importance_cap`, the policy-gradient loss multiplies off-policy turns by truncated importance weights.
        PPO's ratio already corrects for the sampling policy. `PolicyLearner` adds the entropy bonus, the KL penalty and
        the value loss.
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
            # With divide_by_length, the weights of a completion's tokens sum to 1, so the loss divides by completions.
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

    replies: Callable[[str, Sequence[str]], Sequence[str]] | None = None
    """Method that returns the replies over which a counterfactual baseline averages Q(h, a), for an agent and its
    replies of this update. None: no counterfactual baseline."""

    def resolved(self, interests: Interests) -> Algorithm[Settings]:
        """Return the algorithm with `credited_reward` set for the environment's interests: this object, or a copy."""
        config = self.config
        if config.credited_reward is not None:
            return self
        pays_team = interests == "common" or config.reward_model is not None
        found = copy(self)
        found.config = replace(config, credited_reward="team" if pays_team else "own")
        return found

    @property
    def has_team_critic(self) -> bool:
        """True if one critic on the joint history estimates the return of the whole team."""
        return self.critic_reads == "joint" and self.config.credited_reward != "own"

    @property
    def has_actor_heads(self) -> bool:
        """True if the critics are value heads on the actors; each head is trained together with its actor."""
        return False

    @property
    def reads_truth(self) -> bool:
        """True if the critic also reads the hidden state of the environment."""
        return False

    @property
    def crosses_rollouts(self) -> bool:
        """True if the environment scores every combination of the completions in a group as a joint action."""
        return False

    @property
    def max_parallel_episodes(self) -> int:
        """Largest number of episodes of an update that can be played at the same time."""
        return self.config.rollout_buffer_size

    @property
    def critic_warmup(self) -> int:
        """Number of first updates in which only the critic learns. 0 if the critic is not a separate model."""
        return 0

    def warms_up(self, update: int, metrics: Mapping[str, float]) -> bool:
        """Return True if only the critics learn in this update. Called once per update if there are separate critics.

        A warm-up comes back while the returns justify no advantages (`advantage_limit` is 0).
        `update` is the number of finished updates. `metrics`: metrics of this update, such as "explained_variance".
        """
        return update < self.critic_warmup or (self.critic_warmup > 0 and self.advantage_limit == 0)

    def state_dict(self) -> dict[str, Any]:
        """Return the algorithm's state for checkpoints: nested dicts and lists of tensors, numbers and strings."""
        return {"return_spreads": list(self.return_spreads)} if self.return_spreads else {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the result of `state_dict`."""
        self.return_spreads = list(state.get("return_spreads", ()))

    def check(self) -> None:
        """Raise `ValueError` if settings contradict each other. Overriding methods call `super().check()`."""
        config = self.config
        if self.critic_reads != "nothing" and not isinstance(config, ActorCriticConfig):
            raise ValueError(
                f"{type(self).__name__} has critic_reads={self.critic_reads!r}, but its settings "
                f"{type(config).__name__} have no critic; derive the settings from ActorCriticConfig"
            )
        if config.rollout_buffer_size % config.num_generations:
            raise ValueError(
                f"rollout_buffer_size={config.rollout_buffer_size} episodes cannot be split into groups of "
                f"num_generations={config.num_generations} rollouts; make it a multiple of "
                "num_generations"
            )
        if config.turns_per_update is not None and config.num_generations > 1:
            raise ValueError(
                f"turns_per_update={config.turns_per_update} splits episodes over updates, but num_generations="
                f"{config.num_generations} compares whole episodes; omit either setting"
            )
        if config.reference_kl_in == "loss" and config.reference_kl_estimator == "k1":
            raise ValueError(
                "reference_kl_estimator='k1' has gradient 0 in the loss; use 'k2', or reference_kl_in='reward'"
            )
        if config.clip_range_high is not None and config.clip_range is None:
            raise ValueError(f"clip_range_high={config.clip_range_high} needs clip_range; set it too (0.2 is usual)")
        if config.clip_range is None and config.ppo_epochs > 1:
            fault = (
                f"ppo_epochs={config.ppo_epochs} needs clip_range, because the policy gradient is wrong for episodes "
                "of an older policy; set clip_range (0.2 is usual), or ppo_epochs=1"
            )
            if not self.may_repeat_unclipped:
                raise ValueError(fault)
            warnings.warn(fault, stacklevel=2)


class ActorCritic(Algorithm[Settings], ABC):
    """Base class of actor-critic algorithms: the setting `estimator` computes advantages from the critic's values."""

    config: ActorCriticConfig  # type: ignore[assignment]  # Settings narrows the type
    _warmup: int | None = None  # value in the checkpoint; None: computed from the settings

    def advantages(self, grid: Grid) -> Tensor:
        config = self.config
        if grid.action_values is not None:
            # Q(h, a) estimates the return; V(h) does not depend on the action and is the baseline.
            return (grid.action_values - grid.values[:, :-1]) * grid.is_real
        track = (grid.rewards, grid.values, grid.is_real, grid.discounts(config.discount))
        return estimated_advantages(*track, config.estimator, config.trace, config.num_steps)

    def targets(self, grid: Grid) -> Tensor:
        config = self.config
        track = (grid.rewards, grid.values, grid.is_real, grid.discounts(config.discount))
        return critic_targets(*track, config.critic_target, config.trace, config.num_steps)

    @property
    def critic_warmup(self) -> int:
        if self.has_actor_heads:
            return 0
        return warmup_of(self.config) if self._warmup is None else self._warmup

    def state_dict(self) -> dict[str, Any]:
        # The default warm-up depends on num_updates, which may change on resume.
        return super().state_dict() | {"critic_warmup": self.critic_warmup}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self._warmup = state["critic_warmup"]

    def check(self) -> None:
        super().check()
        config = self.config
        if self.critic_warmup >= config.num_updates:
            raise ValueError(
                f"critic_warmup={config.critic_warmup} must be less than num_updates={config.num_updates}, or the "
                "policies never learn; lower critic_warmup or raise num_updates"
            )
        if config.critic_model_name_or_path == BAG_OF_WORDS and not self.has_actor_heads:
            if config.critic_type == "q":
                raise ValueError(
                    f"critic_model_name_or_path={BAG_OF_WORDS!r} evaluates histories, not actions; use critic_type='v'"
                )
            if config.turns_per_update is not None:
                raise ValueError(
                    f"critic_model_name_or_path={BAG_OF_WORDS!r} counts turns from an episode's beginning, but "
                    f"turns_per_update={config.turns_per_update} cuts episodes; omit either setting"
                )
        least = config.rollout_buffer_size if config.turns_per_update is None else config.turns_per_update
        # An episode has at least one step and one token.
        check_warmup_budget(config, self.critic_warmup * least, self.critic_warmup * least)


def warmup_of(config: ActorCriticConfig) -> int:
    """Return the number of updates in which only the critic learns: `critic_warmup`, or its default."""
    if config.critic_warmup is not None:
        return config.critic_warmup
    return DEFAULT_WARMUP if config.num_updates > DEFAULT_WARMUP else config.num_updates // 2


def check_warmup_budget(config: ActorCriticConfig, num_steps: int, num_tokens: int) -> None:
    """Raise `ValueError` if a warm-up of at least `num_steps` and `num_tokens` uses up a budget of the settings."""
    for name, used in (("max_environment_steps", num_steps), ("max_sampled_tokens", num_tokens)):
        limit = getattr(config, name)
        if limit is not None and used >= limit:
            raise ValueError(
                f"critic_warmup={warmup_of(config)} updates use up {name}={limit} before any policy learns; lower "
                f"critic_warmup or raise {name}"
            )
