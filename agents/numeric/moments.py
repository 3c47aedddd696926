"""Running mean and standard deviation: what observations and returns are normalized with."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class RunningMoments:
    """Count, mean and variance of all items seen so far, of any one shape.

    A value: `updated` returns the next one. Before two items were seen it normalizes nothing. When it moves, what a
    network learned in normalized units means something else in real ones; updates get small as the count grows.
    """

    count: Tensor  # scalar
    mean: Tensor  # of the items' shape
    squares: Tensor  # of the items' shape, sum of the squared deviations from the mean

    @classmethod
    def empty(cls, shape: tuple[int, ...] = ()) -> RunningMoments:
        """Nothing seen yet. In double precision: the sums run over millions of items."""
        zeros = torch.zeros(shape, dtype=torch.float64)
        return cls(count=torch.zeros((), dtype=torch.float64), mean=zeros, squares=zeros)

    @property
    def std(self) -> Tensor:
        """Population standard deviation; 1 where nothing has varied, so that dividing by it changes nothing."""
        variance = self.squares / self.count.clamp(min=1)
        # A constant leaves rounding errors behind; they are not a spread.
        varies = variance > 1e-12 * (1 + self.mean.square())
        return torch.where(varies, variance.sqrt(), 1.0)

    def updated(self, items: Tensor, decay: float = 1.0) -> RunningMoments:
        """The moments with more items in them.

            mean' = mean + d * n / (count + n),  squares' = squares + squares_new + d^2 * count * n / (count + n)
            with d = mean_new - mean and n new items

        Source: Chan, Golub and LeVeque (1979), updating formulae for sample variances.

        Args:
            items: [n, ...], n items of the shape of the mean; n may be 0.
            decay: what the earlier items' weight is multiplied with first, 0..1; below 1 the past is forgotten.

        Raises:
            ValueError: if the items' shape is another, or decay leaves 0..1.
        """
        if items.shape[1:] != self.mean.shape:
            raise ValueError(f"items have shape {tuple(items.shape)}, but must be [n, *{tuple(self.mean.shape)}]")
        if not 0.0 <= decay <= 1.0:
            raise ValueError(f"decay is {decay}, but must lie in 0..1")
        if len(items) == 0:
            return self
        items = items.detach().to(self.mean)
        count, squares = self.count * decay, self.squares * decay
        total = count + len(items)
        mean = items.mean(dim=0)
        shift = mean - self.mean
        squares = squares + (items - mean).square().sum(dim=0) + shift.square() * count * len(items) / total
        return RunningMoments(count=total, mean=self.mean + shift * len(items) / total, squares=squares)

    def normalize(self, items: Tensor) -> Tensor:
        """(items - mean) / std, in the dtype of the items."""
        return (items - self.mean.to(items)) / self.std.to(items)

    def denormalize(self, items: Tensor) -> Tensor:
        """items * std + mean: the inverse of `normalize`."""
        return items * self.std.to(items) + self.mean.to(items)
