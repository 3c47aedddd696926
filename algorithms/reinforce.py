"""REINFORCE algorithms: a return minus a baseline from the rollouts of the same task, without a critic."""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable
from typing import ClassVar, final

from torch import Tensor

from .algorithm import Algorithm, Grid
from .config import ReinforceConfig
from .functions.advantages import monte_carlo_returns
from .functions.baselines import group_max_advantages, group_mean_advantages, leave_one_out_advantages, raw_advantages


class Reinforce(Algorithm[ReinforceConfig], ABC):
    """Base class: the advantage is the discounted return from each turn to the end, minus the group's baseline.

    The baseline compares the same turn in all rollouts of a group. The return is 0 if a rollout has ended or its agent
    never acted. Normalization does not subtract the mean, because all four baselines would then be equal.
    """

    centers_advantages: ClassVar[bool] = False
    min_generations: ClassVar[int] = 2
    above_baseline: ClassVar[Callable[..., Tensor]]
    """Function from `functions.baselines` that subtracts a baseline from returns [B, T]."""

    def advantages(self, grid: Grid) -> Tensor:
        config = self.config
        returns = monte_carlo_returns(grid.rewards, grid.is_real, config.discount)
        return type(self).above_baseline(
            returns,
            grid.group,
            grid.is_real,
            group_size=config.num_generations,
            divide_by_std=config.divide_by_std,
        )

    @property
    def crosses_rollouts(self) -> bool:
        return self.config.joint_mode == "cross"

    def check(self) -> None:
        super().check()
        if self.config.turns_per_update is not None:
            raise ValueError(
                f"turns_per_update={self.config.turns_per_update} cuts episodes, which needs a critic to bootstrap; "
                f"{type(self).__name__} has no critic, so omit turns_per_update"
            )
        if self.config.joint_mode == "cross" and self.config.max_staleness:
            raise ValueError(
                f"joint_mode='cross' steps the environments during the update, but max_staleness="
                f"{self.config.max_staleness} plays the next episodes in them; omit one of them"
            )
        if self.config.joint_mode == "cross" and self.config.num_generations < 2:
            raise ValueError(
                f"joint_mode='cross' combines the rollouts of a task; num_generations={self.config.num_generations} "
                "must be at least 2"
            )
        needed = 2 if self.config.divide_by_std else self.min_generations
        if self.config.num_generations < needed:
            raise ValueError(
                f"{type(self).__name__} compares the rollouts of a task; num_generations="
                f"{self.config.num_generations} must be at least {needed}"
            )


@final
class MAREINFORCE(Reinforce):
    """No baseline: the advantage is the return R. Unbiased, large variance.

    Rewards should have a mean near 0, because a positive constant raises the probability of every completion. Top-k and
    top-p need `learns_filtered`; without it the expected gradient is wrong (cosine 0.5 to the true gradient at
    top-p 0.6, for random policies).
    """

    has_baseline: ClassVar[bool] = False
    min_generations: ClassVar[int] = 1
    above_baseline = staticmethod(raw_advantages)


@final
class MAGRPO(Reinforce):
    """Advantage: the return R minus the group's mean return (arXiv:2508.04652).

    The mean contains the rollout's own return, which multiplies the expected gradient by 1 - 1 / G.
    """

    above_baseline = staticmethod(group_mean_advantages)


@final
class MARLOO(Reinforce):
    """Advantage: R minus the other rollouts' mean (RLOO, arXiv:2402.14740). Unbiased; G / (G - 1) times MAGRPO's."""

    above_baseline = staticmethod(leave_one_out_advantages)


@final
class MAReMax(Reinforce):
    """Advantage: R minus the largest return of the group. Biased: the baseline depends on the rollout's own actions.

    The expected gradient can point away from the true gradient; see `group_max_advantages`. The name comes from ReMax
    (arXiv:2310.10505), which subtracts the return of the greedy completion and is unbiased.
    """

    above_baseline = staticmethod(group_max_advantages)
