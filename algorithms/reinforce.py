"""REINFORCE algorithms without a critic: the baseline comes from rollouts of the same task."""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar, final

import torch
from torch import Tensor

from ..agents.core import Policy
from ..envs.vectors.vector import VectorEnv
from .algorithm import Algorithm, Grid
from .config import C3Config, ReinforceConfig
from .functions.advantages import monte_carlo_returns
from .functions.baselines import (
    group_max_advantages,
    group_mean_advantages,
    leave_one_out_advantages,
    moving_average_advantages,
    raw_advantages,
    trajectory_advantages,
)
from .published import RAEConfig
from .rollout.branching import MAX_DECISIONS, WEIGHT, BranchingCollector


class Reinforce(Algorithm[ReinforceConfig], ABC):
    """Base class of REINFORCE algorithms: the advantage is the return minus the baseline of the group of rollouts.

    The baseline of a turn is computed from the returns of the same turn in all rollouts of a group. The return is 0 if
    a rollout has ended or its agent never acted. Normalization does not subtract the mean, to keep baselines distinct.
    """

    centers_advantages: ClassVar[bool] = False
    min_generations: ClassVar[int] = 2
    above_baseline: ClassVar[Callable[..., Tensor]]
    """Function from `functions.baselines` that subtracts a baseline from returns [B, T]."""

    def advantages(self, grid: Grid) -> Tensor:
        config = self.config
        return type(self).above_baseline(
            self.returns(grid),
            grid.group,
            grid.is_real,
            group_size=config.num_generations,
            divide_by_std=config.divide_by_std,
        )

    def returns(self, grid: Grid) -> Tensor:
        """Return the returns [B, T] that the baseline compares."""
        return monte_carlo_returns(grid.rewards, grid.is_real, grid.discounts(self.config.discount))

    @property
    def crosses_rollouts(self) -> bool:
        return self.config.joint_mode == "cross"

    def check(self) -> None:
        super().check()
        config, name = self.config, type(self).__name__
        if config.turns_per_update is not None:
            raise ValueError(
                f"turns_per_update={config.turns_per_update} splits episodes over updates, which needs a "
                f"critic, but {name} has no critic; omit turns_per_update"
            )
        if config.joint_mode == "cross" and config.max_staleness:
            raise ValueError(
                f"joint_mode='cross' steps the environments during the update, but max_staleness="
                f"{config.max_staleness} plays the next episodes in the same environments; omit either setting"
            )
        is_crossed = config.joint_mode == "cross"
        needed = 2 if is_crossed or config.divide_by_std else self.min_generations
        if config.num_generations < needed:
            user = "joint_mode='cross' combines" if is_crossed else f"{name} compares"
            raise ValueError(
                f"{user} rollouts of one task; num_generations={config.num_generations} must be at least {needed}"
            )


@final
class MAREINFORCE(Reinforce):
    """REINFORCE without a baseline: the advantage is the return. Unbiased, large variance.

    Rewards should have a mean near 0, because a positive constant raises the probability of every completion. Top-k and
    top-p need `learns_filtered`; without it the expected gradient is wrong (cosine 0.5 to the true gradient at top-p
    0.6, for random policies).
    """

    has_baseline: ClassVar[bool] = False
    min_generations: ClassVar[int] = 1
    above_baseline = staticmethod(raw_advantages)


@final
class MAGRPO(Reinforce):
    """REINFORCE with the group's mean return as the baseline (arXiv:2508.04652).

    The mean contains the rollout's own return, which multiplies the expected gradient by 1 - 1 / G for G rollouts.
    """

    above_baseline = staticmethod(group_mean_advantages)


@final
class MARLOO(Reinforce):
    """REINFORCE with the mean return of the group's other rollouts as the baseline (arXiv:2402.14740). Unbiased."""

    above_baseline = staticmethod(leave_one_out_advantages)


@final
class MAReMax(Reinforce):
    """REINFORCE with the largest return of the group of rollouts as the baseline. Biased.

    The baseline depends on the rollout's own actions. The expected gradient can therefore point away from the true
    gradient; see `group_max_advantages`. The name comes from ReMax (arXiv:2310.10505), which is unbiased, because its
    baseline is the return of the greedy completion.
    """

    above_baseline = staticmethod(group_max_advantages)


@final
class C3(Reinforce):
    """Contextual counterfactual credit: a reply's return minus the mean return of other replies to the same history.

        A[k] = w * (R[k] - sum over k' != k of R[k'] / (K - 1))

    R[k] is the discounted return from the reply on. Its episode repeats all earlier replies, and the replies of the
    other agents in this turn. w is the number of decisions of the base episode divided by the number of drawn ones.
    The expected gradient is that of all decisions. Unbiased if equally many decisions are drawn in each episode.
    Source: C3 (arXiv:2603.06859).
    """

    config: C3Config  # narrows the type of the base class
    min_generations: ClassVar[int] = 1

    def check(self) -> None:
        super().check()
        if self.config.num_generations != 1 or self.config.joint_mode == "cross":
            raise ValueError(
                f"num_generations={self.config.num_generations}, joint_mode={self.config.joint_mode!r}: c3 has one "
                "base episode per task and compares alternatives of its decisions; set num_alternatives instead"
            )

    def advantages(self, grid: Grid) -> Tensor:
        advantages = leave_one_out_advantages(grid.rewards, grid.group, divide_by_std=self.config.divide_by_std)
        weights = [next(info[WEIGHT] for info in each.infos if WEIGHT in info) for each in grid.episodes]
        return advantages * advantages.new_tensor(weights)[:, None]

    @property
    def max_parallel_episodes(self) -> int:
        config = self.config
        return config.rollout_buffer_size * (config.num_alternatives - 1) * (config.num_decisions or MAX_DECISIONS)

    def make_collector(self, vector: VectorEnv, policies: Mapping[str, Policy], **options: Any) -> BranchingCollector:
        return BranchingCollector(vector, policies, self.config, **options)


@final
class DrMAS(Reinforce):
    """GRPO with the mean and standard deviation of all turns of the same agent in the group (arXiv:2602.08847).

    The return is that of the whole track. Agents that act more often in bad rollouts lower the mean.
    """

    above_baseline = staticmethod(trajectory_advantages)


@final
class MGRPO(Reinforce):
    """GRPO per agent in which every rollout has the same weight, no matter how often the agent acts in it.

    The weights are the expectation of the paper's random duplicates and drops. Its servers and its rewards of
    sub-agents are left out. Source: M-GRPO, hierarchical GRPO (arXiv:2511.13288).
    """

    above_baseline = partial(trajectory_advantages, weighs_rollouts_equally=True)


@final
class DifferenceRewards(Reinforce):
    """MARLOO on difference rewards: the team's return minus its return without the agent's replies.

        D_i = G - G_without_i

    `envs.wrappers.Shares` measures G_without_i by a replay in which the other agents repeat their replies. Unbiased
    if no reply depends on another agent's replies. Every turn has the same return, undiscounted and not shaped. Source:
    Wolpert and Tumer, Optimal payoff functions for members of collectives (2001).
    """

    above_baseline = staticmethod(leave_one_out_advantages)
    reads_shares: ClassVar[bool] = True

    def check(self) -> None:
        super().check()
        for name, off in (("reward_model", None), ("early_termination_threshold", None), ("joint_mode", "aligned")):
            if getattr(self.config, name) != off:
                raise ValueError(f"{name}={getattr(self.config, name)!r} changes no difference reward; leave it out")

    def returns(self, grid: Grid) -> Tensor:
        measured = [episode.infos[-1][f"difference/{grid.agent}"] for episode in grid.episodes]
        return torch.where(grid.is_real, grid.rewards.new_tensor(measured)[:, None], 0.0)


@final
class RAE(Reinforce):
    """Role-conditioned advantage estimation: the baseline is a moving average of the agent's earlier returns.

    The return is that of the whole track. Unbiased, and needs no groups. Source: SPIRAL (arXiv:2506.24119).
    """

    config: RAEConfig  # narrows the type of the base class
    min_generations: ClassVar[int] = 1

    def __init__(self, config: RAEConfig):
        super().__init__(config)
        self.baselines: dict[str | None, float] = {}

    def advantages(self, grid: Grid) -> Tensor:
        known = self.baselines.get(grid.agent, 0.0)
        returns = self.returns(grid)[:, 0]
        advantages, self.baselines[grid.agent] = moving_average_advantages(returns, known, self.config.baseline_decay)
        return torch.where(grid.is_real, advantages[:, None], 0.0)

    def state_dict(self) -> dict[str, Any]:
        return {"baselines": dict(self.baselines)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.baselines = dict(state["baselines"])
