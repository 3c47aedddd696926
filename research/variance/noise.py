"""Noise of advantages, and of the policy gradients computed with them: pure functions of arrays.

Axes: V kinds of advantage, A agents, N episodes, T turns, W weights of a policy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from collm.algorithms.functions.advantages import gae
from collm.algorithms.rollout.intervals import Floats


def traced(rewards: Floats, values: Floats, trace: float) -> Floats:
    """Return [A, N, T] undiscounted advantages (GAE) of episodes that all end after turn T.

    Args:
        rewards: [N, T] team rewards.
        values: [A, N, T] critic values before each turn.
        trace: GAE's lambda.
    """
    num_agents, num_episodes, num_turns = values.shape
    padded = torch.zeros(num_agents * num_episodes, num_turns + 1, dtype=torch.float64)
    padded[:, :-1] = torch.tensor(values).reshape(-1, num_turns)
    repeated = torch.tensor(rewards).double().repeat(num_agents, 1)
    found = gae(repeated, padded, torch.ones_like(repeated, dtype=torch.bool), 1.0, trace)
    return found.numpy().reshape(values.shape)


def relative_variance(advantages: Floats, returns: Floats) -> float:
    """Return the advantages' variance over episodes, averaged over agents and turns, divided by the returns' variance.

    Args:
        advantages: [A, N, T].
        returns: [N].

    Returns:
        nan if all returns are equal.
    """
    unit = returns.var()
    return float(advantages.var(axis=1).mean() / unit) if unit > 0 else float("nan")


def effect_correlation(advantages: Floats, effects: Floats) -> float:
    """Return the correlation of advantages A with the turns' true effects D, over episodes, pooled over turns.

        sum cov(A, D) / sqrt(sum var(A) * sum var(D)), sums over the turns

    The effects are estimated from two halves of branches with independent errors. These errors do not bias cov(A, D).
    The covariance of the two halves estimates var(D) without bias. Therefore even few branches cause no attenuation.
    nan: the estimate of var(D) is not positive.

    Args:
        advantages: [A, N, T].
        effects: [2, N, T].
    """
    centred = advantages - advantages.mean(axis=1, keepdims=True)
    first, second = effects - effects.mean(axis=1, keepdims=True)
    shared = (centred * (first + second) / 2).mean(axis=1).sum(axis=1)  # [A]
    own = np.square(centred).mean(axis=1).sum(axis=1)
    true = (first * second).mean(axis=0).sum()
    if true <= 0 or (own <= 0).any():
        return float("nan")
    return float((shared / np.sqrt(own * true)).mean())


def left_out(estimate: Callable[[list[int]], float], groups: Sequence[int]) -> list[float]:
    """Return [K] estimates, each without one of the K groups, for `jackknife_error`.

    Args:
        estimate: function of episode indices.
        groups: [N] group of each episode. Rollouts of one task share random numbers and a baseline.
    """
    numbers = range(len(groups))
    return [estimate([number for number in numbers if groups[number] != group]) for group in dict.fromkeys(groups)]


def jackknife_error(estimates: Sequence[float]) -> float:
    """Return the standard error of an estimate, from estimates that each leave out one group.

    Source: Efron and Stein, The jackknife estimate of variance (1981).
    """
    found = np.array(estimates)
    return float(np.sqrt((len(found) - 1) * found.var()))


@dataclass
class GradientSums:
    """Sums over episodes of one policy's gradients, to compute the mean gradient and its variance.

    An episode's gradient for kind v of advantage is sum over t of A[v, t] * g[t], where g[t] is the gradient of the
    log-probability of the agent's completion in turn t. It is exact: all turns and weights are used.
    """

    squares: Floats  # [V] sums of the gradients' squared lengths
    halves: torch.Tensor  # [2, V, W] sums of the gradients, over episodes with even and with odd numbers
    counts: list[int]  # numbers of episodes in the two halves

    @classmethod
    def empty(cls, num_kinds: int, num_weights: int) -> GradientSums:
        return cls(np.zeros(num_kinds), torch.zeros(2, num_kinds, num_weights), [0, 0])

    def add(self, number: int, advantages: Floats, gradients: torch.Tensor) -> None:
        """Add the gradients of an episode.

        Args:
            number: even or odd, which chooses the half. Rollouts of one task share baselines and so belong to one half.
            advantages: [V, T].
            gradients: [T, W].
        """
        own = torch.tensor(advantages, dtype=gradients.dtype) @ gradients
        self.squares += own.double().square().sum(dim=1).numpy()
        self.halves[number % 2] += own
        self.counts[number % 2] += 1


@dataclass(frozen=True)
class GradientNoise:
    """Noise of the mean policy gradient of each kind of advantage. Axis: V."""

    variances: Floats
    """Trace of the covariance of an episode's gradient, over all policies."""
    signals: Floats
    """Squared length of the mean gradient's projection on the true gradient. nan: noise hides the true gradient."""

    @property
    def samples(self) -> Floats:
        """Number of episodes at which the variance of the mean gradient equals the signal: variance / signal."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return self.variances / self.signals


def gradient_noise(sums: Iterable[GradientSums], true_kinds: tuple[int, int]) -> GradientNoise:
    """Return the noise of the gradients of all policies together.

    Products of sums over different episodes are unbiased. The product of the two halves therefore estimates the squared
    length of the true mean gradient, and in the same way products with the gradients of other kinds of advantage.

    Args:
        sums: one object per policy.
        true_kinds: indices of the two kinds whose advantages are the true effects, one per half of the branches.
    """
    kept = list(sums)
    count = sum(kept[0].counts)
    halves = [each.halves.double() / torch.tensor(each.counts)[:, None, None] for each in kept]
    # The policies have separate weights, so squared lengths and products are summed over policies.
    squares = np.sum([each.squares for each in kept], axis=0) / count
    means = np.sum([(each.halves.double().sum(dim=0) / count).square().sum(dim=1).numpy() for each in kept], axis=0)
    one, other = true_kinds
    true = sum(float(half[0, one] @ half[1, other] + half[0, other] @ half[1, one]) / 2 for half in halves)
    truth = [(half[:, one] + half[:, other]) / 2 for half in halves]
    products = [(half[0] @ mean[1] + half[1] @ mean[0]).numpy() / 2 for half, mean in zip(halves, truth, strict=True)]
    along = np.sum(products, axis=0)
    signals = np.square(along) / true if true > 0 else np.full(len(along), np.nan)
    return GradientNoise((squares - means) * count / (count - 1), signals)
