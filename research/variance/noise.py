"""How noisy advantages are, and the policy gradients that are made of them: pure functions of arrays.

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
    """[A, N, T] advantages of episodes that all end after turn T, undiscounted.

    Args:
        rewards: [N, T] team rewards.
        values: [A, N, T] before each turn.
        trace: GAE's lambda.
    """
    num_agents, num_episodes, num_turns = values.shape
    padded = torch.zeros(num_agents * num_episodes, num_turns + 1, dtype=torch.float64)
    padded[:, :-1] = torch.tensor(values).reshape(-1, num_turns)
    repeated = torch.tensor(rewards).double().repeat(num_agents, 1)
    found = gae(repeated, padded, torch.ones_like(repeated, dtype=torch.bool), 1.0, trace)
    return found.numpy().reshape(values.shape)


def relative_variance(advantages: Floats, returns: Floats) -> float:
    """Variance of the advantages over the episodes, mean of agents and turns, in units of the returns' variance.

    Args:
        advantages: [A, N, T].
        returns: [N].

    Returns:
        nan where all returns are equal.
    """
    unit = returns.var()
    return float(advantages.var(axis=1).mean() / unit) if unit > 0 else float("nan")


def effect_correlation(advantages: Floats, effects: Floats) -> float:
    """Correlation of the advantages with the turns' true effects, over the episodes of each turn, turns pooled.

        sum cov(A, D) / sqrt(sum var(A) * sum var(D)), sums over the turns

    The effects are known from two halves of branches with independent errors: these add nothing on average to the
    covariance with the advantages, nor to that between the halves, which stands for the effects' variance. So there is
    no attenuation, however few the branches; nan where the effects' variance is estimated as 0 or below.

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
    """[K] estimate without each of the K groups, from which `jackknife_error` tells how far chance moves it.

    Args:
        estimate: of the episodes of these numbers.
        groups: [N] of each episode; rollouts of one task share its draws and their baseline.
    """
    numbers = range(len(groups))
    return [estimate([number for number in numbers if groups[number] != group]) for group in dict.fromkeys(groups)]


def jackknife_error(estimates: Sequence[float]) -> float:
    """Standard error of an estimate, from those that each leave one group out.

    Source: Efron and Stein, The jackknife estimate of variance (1981).
    """
    found = np.array(estimates)
    return float(np.sqrt((len(found) - 1) * found.var()))


@dataclass
class GradientSums:
    """Sums over episodes of gradients of one policy, from which their mean and variance follow.

    An episode's gradient of a kind v is sum over t of A[v, t] * g[t], with g[t] the gradient of the log-probability of
    the agent's completion in turn t. Nothing is projected or sampled.
    """

    squares: Floats  # [V] sum of squared lengths
    halves: torch.Tensor  # [2, V, W] sums over the episodes of even and of odd number
    counts: list[int]  # episodes of even and of odd number

    @classmethod
    def empty(cls, num_kinds: int, num_weights: int) -> GradientSums:
        return cls(np.zeros(num_kinds), torch.zeros(2, num_kinds, num_weights), [0, 0])

    def add(self, number: int, advantages: Floats, gradients: torch.Tensor) -> None:
        """Add an episode.

        Args:
            number: of its half, even or odd; rollouts of one task belong in one half, as they share baselines.
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
    """Squared length of the mean gradient along the true one; nan where the true one is lost in noise."""

    @property
    def samples(self) -> Floats:
        """Episodes whose mean gradient has as much variance as it has signal, squared: variance / signal."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return self.variances / self.signals


def gradient_noise(sums: Iterable[GradientSums], true_kinds: tuple[int, int]) -> GradientNoise:
    """Noise of the gradients of all policies together.

    Products of sums over different episodes have no noise of their own on average: the squared length of the true mean
    is estimated by that of its two halves with each other, and its product with another kind's likewise.

    Args:
        sums: a policy's each.
        true_kinds: numbers of the two kinds whose advantages are the true effects by either half of the branches.
    """
    kept = list(sums)
    count = sum(kept[0].counts)
    halves = [each.halves.double() / torch.tensor(each.counts)[:, None, None] for each in kept]
    # Each policy has weights of its own: squared lengths and products add up over them.
    squares = np.sum([each.squares for each in kept], axis=0) / count
    means = np.sum([(each.halves.double().sum(dim=0) / count).square().sum(dim=1).numpy() for each in kept], axis=0)
    one, other = true_kinds
    true = sum(float(half[0, one] @ half[1, other] + half[0, other] @ half[1, one]) / 2 for half in halves)
    truth = [(half[:, one] + half[:, other]) / 2 for half in halves]
    products = [(half[0] @ mean[1] + half[1] @ mean[0]).numpy() / 2 for half, mean in zip(halves, truth, strict=True)]
    along = np.sum(products, axis=0)
    signals = np.square(along) / true if true > 0 else np.full(len(along), np.nan)
    return GradientNoise((squares - means) * count / (count - 1), signals)
