"""The REINFORCE family: returns above a baseline that is made of the rollouts of the same task; no critic."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal, final

from torch import Tensor

from .advantages import monte_carlo_returns
from .algorithm import Algorithm
from .baselines import group_max_advantages, group_mean_advantages, leave_one_out_advantages, raw_advantages
from .config import AdvantageNormalization, TrainConfig
from .grids import Grid


@dataclass(frozen=True, kw_only=True)
class ReinforceConfig(TrainConfig):
    """Settings of MAREINFORCE, MAGRPO and MAReMax."""

    num_generations: int = 8
    """Rollouts of each task, all from one seed: the group that the baseline is made of."""
    divide_by_std: bool = False
    """Divide by the deviation of the group's returns; it weighs tasks by their difficulty (arXiv:2503.20783)."""
    joint_mode: Literal["aligned", "cross"] = "aligned"
    """What meets what: the completions of one rollout only; or each with all of the group's, scored by
    num_generations ** agents environment steps. cross needs games of one turn."""


@dataclass(frozen=True, kw_only=True)
class MARLOOConfig(ReinforceConfig):
    """Settings of MARLOO."""

    advantage_normalization: AdvantageNormalization = "none"
    """Bring advantages to deviation 1: over all agents and turns ("batch"), each agent's, each turn's, each turn's of
    each agent; or not. Brought to one deviation, MARLOO's are MAGRPO's."""


class Reinforce(Algorithm[ReinforceConfig], ABC):
    """Discounted return from each turn on, above a baseline of the same turn of the group's rollouts.

    Normalization keeps the mean here: moving it to 0 would make all four baselines the same.
    """

    centers_advantages: ClassVar[bool] = False
    min_generations: ClassVar[int] = 2

    def advantages(self, grid: Grid) -> Tensor:
        returns = monte_carlo_returns(grid.rewards, grid.is_real, self.config.discount)
        return self.above_baseline(returns, grid)

    @abstractmethod
    def above_baseline(self, returns: Tensor, grid: Grid) -> Tensor:
        """[B, T] returns less the rule's baseline."""

    def check(self) -> None:
        super().check()
        if self.config.turns_per_update is not None:
            raise ValueError(
                f"turns_per_update={self.config.turns_per_update} cuts episodes, but {type(self).__name__} has no "
                "critic to say what a cut one is worth; leave it out"
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
    """No baseline: R. Unbiased, and noisy; it assumes rewards around 0, as a constant one pushes every reply up."""

    min_generations: ClassVar[int] = 1

    def above_baseline(self, returns: Tensor, grid: Grid) -> Tensor:
        return raw_advantages(returns, grid.group, grid.is_real, divide_by_std=self.config.divide_by_std)


@final
class MAGRPO(Reinforce):
    """R - mean of the group (arXiv:2508.04652). A group of equal returns teaches nothing."""

    def above_baseline(self, returns: Tensor, grid: Grid) -> Tensor:
        return group_mean_advantages(returns, grid.group, grid.is_real, divide_by_std=self.config.divide_by_std)


@final
class MARLOO(Reinforce):
    """R - mean of the others in the group (arXiv:2402.14740): MAGRPO times G / (G - 1), and unbiased."""

    def above_baseline(self, returns: Tensor, grid: Grid) -> Tensor:
        return leave_one_out_advantages(returns, grid.group, grid.is_real, divide_by_std=self.config.divide_by_std)


@final
class MAReMax(Reinforce):
    """R - best of the group (after ReMax, arXiv:2310.10505): all but the best are pushed down, by how far they fell."""

    def above_baseline(self, returns: Tensor, grid: Grid) -> Tensor:
        return group_max_advantages(returns, grid.group, grid.is_real, divide_by_std=self.config.divide_by_std)
