"""Running mean and standard deviation, to normalize observations and returns."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class RunningMoments:
    """Count, mean and variance of all items added so far. `updated` returns new moments."""

    count: Tensor  # scalar
    mean: Tensor  # of the items' shape
    squares: Tensor  # of the items' shape, sum of squared deviations from the mean

    @classmethod
    def empty(cls, shape: tuple[int, ...] = ()) -> RunningMoments:
        """Return moments of zero items, with mean 0 and standard deviation 1."""
        # float64, because sums are over millions of items
        zeros = torch.zeros(shape, dtype=torch.float64)
        return cls(count=torch.zeros((), dtype=torch.float64), mean=zeros, squares=zeros)

    @property
    def std(self) -> Tensor:
        """Population standard deviation. 1 for components that are constant."""
        variance = self.squares / self.count.clamp(min=1)
        # The variance of a constant is not exactly 0, because of rounding.
        varies = variance > 1e-12 * (1 + self.mean.square())
        return torch.where(varies, variance.sqrt(), 1.0)

    def updated(self, items: Tensor) -> RunningMoments:
        """Return the moments after adding items [n, ...], each with the shape of the mean; n may be 0.

            mean' = mean + d * n / (count + n),  squares' = squares + squares_new + d^2 * count * n / (count + n)
            with d = mean_new - mean

        Source: Chan, Golub and LeVeque (1979), updating formulae for sample variances.
        """
        if items.shape[1:] != self.mean.shape:
            raise ValueError(f"items have shape {tuple(items.shape)}, but must be [n, *{tuple(self.mean.shape)}]")
        if len(items) == 0:
            return self
        items = items.detach().to(self.mean)
        total = self.count + len(items)
        mean = items.mean(dim=0)
        shift = mean - self.mean
        squares = self.squares + (items - mean).square().sum(dim=0) + shift.square() * self.count * len(items) / total
        return RunningMoments(count=total, mean=self.mean + shift * len(items) / total, squares=squares)

    def normalize(self, items: Tensor) -> Tensor:
        return (items - self.mean.to(items)) / self.std.to(items)

    def denormalize(self, items: Tensor) -> Tensor:
        return items * self.std.to(items) + self.mean.to(items)
