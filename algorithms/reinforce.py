"""The REINFORCE family: returns minus a baseline from the rollouts of the same task; no critic."""

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
    """Advantage: discounted return from each turn on, minus a baseline from the same turn of the group's rollouts.

    A rollout that has ended counts with a return of 0 there, and so does one in which the agent never moved.

    Normalization keeps the mean here: subtracting it would make all four baselines the same.
    """

    centers_advantages: ClassVar[bool] = False
    min_generations: ClassVar[int] = 2
    above_baseline: ClassVar[Callable[..., Tensor]]
    """Rule of `functions.baselines`: returns [B, T] minus the algorithm's baseline."""

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
                f"turns_per_update={self.config.turns_per_update} cuts episodes, but {type(self).__name__} has no "
                "critic to say what a cut one is worth; leave it out"
            )
        if self.config.joint_mode == "cross" and self.config.max_staleness:
            raise ValueError(
                f"joint_mode='cross' plays in the environments while it learns, where with max_staleness="
                f"{self.config.max_staleness} those of the next updates are played; leave one of them out"
            )
        if self.config.joint_mode == "cross" and self.config.num_generations < 2:
            raise ValueError(
                f"joint_mode='cross' combines the rollouts of a task, but num_generations="
                f"{self.config.num_generations}; give at least 2"
            )
        needed = 2 if self.config.divide_by_std else self.min_generations
        if self.config.num_generations < needed:
            raise ValueError(
                f"{type(self).__name__} compares the rollouts of a task with each other, but num_generations="
                f"{self.config.num_generations}; give at least {needed}"
            )


@final
class MAREINFORCE(Reinforce):
    """No baseline: the advantage is the return R. Unbiased and noisy.

    Rewards should lie around 0: a positive constant raises the probability of every completion. Top-k and top-p need
    `learns_filtered`: before them, the expected gradient points elsewhere (cosine 0.5 at top-p 0.6 on random policies).
    """

    has_baseline: ClassVar[bool] = False
    min_generations: ClassVar[int] = 1
    above_baseline = staticmethod(raw_advantages)


@final
class MAGRPO(Reinforce):
    """Advantage R - mean of the group (arXiv:2508.04652); 0 throughout a group of equal returns.

    The mean includes the rollout's own return, which multiplies the expected gradient by 1 - 1 / G.
    """

    above_baseline = staticmethod(group_mean_advantages)


@final
class MARLOO(Reinforce):
    """Advantage R - mean of the others in the group (RLOO, arXiv:2402.14740): MAGRPO's times G / (G - 1); unbiased."""

    above_baseline = staticmethod(leave_one_out_advantages)


@final
class MAReMax(Reinforce):
    """Advantage R - best return of the group: 0 for the best rollout, below 0 for the others. Biased.

    The baseline depends on the rollout's own actions. The expected gradient can point away from the true one: the
    cosine between them was -0.9985 for one agent of an enumerated game whose episodes can end early. It is named after
    ReMax (arXiv:2310.10505), which subtracts the return of the greedy completion and is unbiased.
    """

    above_baseline = staticmethod(group_max_advantages)
