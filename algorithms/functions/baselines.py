"""Baselines: advantages without a critic, from comparing the rollouts of one task.

Axes: B tracks (one agent's turns in one episode each); T turns. A group is the G rollouts of one task by one agent.
`group[b]` is the number of b's group: any integers, in any order; groups may differ in size. `returns` is [B], or
[B, T] with the return from each turn on (`monte_carlo_returns`); then every turn is compared with the same turn of the
rollouts that reached it. `is_real`, of the shape of `returns`, is True where a turn happened; padding, NaN included, is
never read, and every result is 0 there.

The four baselines differ in what they subtract. Normalization to zero mean makes them all the same; scaling alone
(`normalized` with subtract_mean=False, or divide_by_std) keeps them apart.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

# Added to a standard deviation before dividing by it, in the unit of the rewards: it bounds how far rounding errors of
# nearly equal returns can be scaled up.
EPSILON = 1e-6


def raw_advantages(
    returns: Tensor, group: Tensor, is_real: Tensor | None = None, *, divide_by_std: bool = False
) -> Tensor:
    """Return without a baseline: no bias, most variance (MAREINFORCE).

        A = R

    Source: Williams (1992), REINFORCE.

    Args:
        returns: [B] or [B, T].
        group: [B] integers.
        is_real: of the shape of returns; None: all.
        divide_by_std: divide by the root mean square of the group's returns, their deviation from the baseline 0. The
            deviation from their mean would scale up the returns of a group of nearly equal ones.

    Returns:
        Of the shape of returns. Only these advantages change when a constant is added to every reward.

    Raises:
        ValueError: if the shapes disagree.
    """
    rollouts = _grouped(returns, group, is_real, min_size=1)
    advantages = torch.where(rollouts.is_real, returns, 0.0)
    return _divided(advantages, advantages, rollouts) if divide_by_std else advantages


def group_mean_advantages(
    returns: Tensor, group: Tensor, is_real: Tensor | None = None, *, divide_by_std: bool = False
) -> Tensor:
    """Return minus the mean of its own group (MAGRPO).

        A[g] = R[g] - mean over g' of R[g']

    Source: MAGRPO (arXiv:2508.04652) after GRPO (arXiv:2402.03300). Division by the group's standard deviation is
    GRPO's; it weighs tasks by their difficulty (arXiv:2503.20783), so it is off by default.

    Args:
        returns: [B] or [B, T].
        group: [B] integers.
        is_real: of the shape of returns; None: all.
        divide_by_std: divide by the group's standard deviation.

    Returns:
        Of the shape of returns; sums to 0 over each group. Equal returns give exactly 0, and so does a turn that
        only one rollout of its group reached.

    Raises:
        ValueError: if shapes disagree, or if a group is a lone rollout, whose advantages would all silently be 0.
    """
    rollouts = _grouped(returns, group, is_real, min_size=2)
    advantages = _above_mean(rollouts)
    return _divided(advantages, advantages, rollouts) if divide_by_std else advantages


def leave_one_out_advantages(
    returns: Tensor, group: Tensor, is_real: Tensor | None = None, *, divide_by_std: bool = False
) -> Tensor:
    """Return minus the mean of the *other* rollouts of its group, which do not depend on it: no bias (MARLOO).

        A[g] = R[g] - sum over g' != g of R[g'] / (G - 1) = G / (G - 1) * (R[g] - mean)

    Source: RLOO (arXiv:2402.14740), Kool et al. (2019).

    Args:
        returns: [B] or [B, T].
        group: [B] integers.
        is_real: of the shape of returns; None: all.
        divide_by_std: divide by the group's standard deviation.

    Returns:
        Of the shape of returns. Equal returns give exactly 0, and so does a turn that only one rollout reached.

    Raises:
        ValueError: if shapes disagree, or if a group is a lone rollout, with no others to compare with.
    """
    rollouts = _grouped(returns, group, is_real, min_size=2)
    sizes = rollouts.sizes[rollouts.row]
    above_mean = _above_mean(rollouts)
    advantages = above_mean * sizes / (sizes - 1).clamp(min=1)
    return _divided(advantages, above_mean, rollouts) if divide_by_std else advantages


def group_max_advantages(
    returns: Tensor, group: Tensor, is_real: Tensor | None = None, *, divide_by_std: bool = False
) -> Tensor:
    """Return minus the best return of its group: 0 for the best, below 0 for the others (MAReMax).

        A[g] = R[g] - max over g' of R[g']

    ReMax (arXiv:2310.10505) subtracts the return of the greedy completion; here the best sample takes its place. The
    estimate is biased, as the best rollout is part of its own baseline.

    Args:
        returns: [B] or [B, T].
        group: [B] integers.
        is_real: of the shape of returns; None: all.
        divide_by_std: divide by the group's standard deviation.

    Returns:
        Of the shape of returns, never above 0.

    Raises:
        ValueError: if shapes disagree, or if a group is a lone rollout, whose advantages would all silently be 0.
    """
    rollouts = _grouped(returns, group, is_real, min_size=2)
    advantages = rollouts.below_best
    return _divided(advantages, _above_mean(rollouts), rollouts) if divide_by_std else advantages


def cross_returns(joint_returns: Tensor) -> Tensor:
    """Return of each agent's completion, averaged over every joint action of the agents' completions.

        R_i[g] = mean of the joint returns over all joint actions in which agent i uses completion g

    The mean, not the sum: returns keep their unit, and G**(N - 1) does not scale the learning rate.

    Args:
        joint_returns: [P, G, ..., G], P tasks, then one axis per agent over its own completions.

    Returns:
        [P, N, G].

    Raises:
        ValueError: if there is no agent axis, or the agents' numbers of completions differ.
    """
    sizes = joint_returns.shape[1:]
    num_agents = len(sizes)
    if num_agents == 0 or len(set(sizes)) != 1:
        raise ValueError(
            f"joint_returns has shape {tuple(joint_returns.shape)}; give [P, G, ..., G], an axis per agent"
        )
    credits = []
    for agent in range(num_agents):
        other_agents = [axis + 1 for axis in range(num_agents) if axis != agent]
        credits.append(joint_returns.mean(dim=other_agents) if other_agents else joint_returns)
    return torch.stack(credits, dim=1)


def normalized(
    advantages: Tensor, is_real: Tensor, group: Tensor | None = None, *, subtract_mean: bool = True
) -> Tensor:
    """Advantages scaled to unit standard deviation, over the whole batch or within groups (per agent, per turn).

        (A - mean) / std,  or A / root mean square where the mean is kept

    Division by the root mean square keeps signs, and so keeps baselines apart that differ by a constant.

    Args:
        advantages: of any shape.
        is_real: of the same shape, bool.
        group: integers of the same shape; each group is normalized separately. None: all together.
        subtract_mean: also move the mean to 0.

    Returns:
        Of the shape of advantages. With subtract_mean, the only item of a group keeps its value, and equal advantages
        give exactly 0.

    Raises:
        ValueError: if the shapes disagree.
    """
    group = torch.zeros_like(is_real, dtype=torch.long) if group is None else group
    if not advantages.shape == is_real.shape == group.shape:
        raise ValueError(
            f"advantages {tuple(advantages.shape)}, is_real {tuple(is_real.shape)} and group {tuple(group.shape)} "
            "must have one shape"
        )
    items = _grouped(advantages[is_real], group[is_real], None, min_size=1)
    values = advantages[is_real]
    if subtract_mean:
        above_mean = _above_mean(items)
        values = torch.where(items.sizes[items.row] == 1, values, _divided(above_mean, above_mean, items))
    else:
        values = _divided(values, values, items)
    return torch.zeros_like(advantages).masked_scatter(is_real, values)


class _Grouped(NamedTuple):
    is_real: Tensor
    row: Tensor  # [B], which of the distinct groups
    sizes: Tensor  # [number of groups, ...], real entries
    below_best: Tensor  # of the shape of returns: each minus the largest of its group, 0 in padding


def _grouped(returns: Tensor, group: Tensor, is_real: Tensor | None, min_size: int) -> _Grouped:
    if group.shape != returns.shape[:1] or (is_real is not None and is_real.shape != returns.shape):
        shape = None if is_real is None else tuple(is_real.shape)
        raise ValueError(
            f"returns {tuple(returns.shape)} need one group for each row and is_real of their shape, "
            f"but got group {tuple(group.shape)} and is_real {shape}"
        )
    names, row, rollouts = torch.unique(group, return_inverse=True, return_counts=True)
    if bool((rollouts < min_size).any()):
        lone = names[rollouts < min_size].tolist()
        raise ValueError(
            f"group {lone[0]} has 1 rollout, but this baseline compares the rollouts of a task with each other; "
            "give every group at least 2"
        )
    is_real = torch.ones_like(returns, dtype=torch.bool) if is_real is None else is_real
    trailing = returns.shape[1:]
    sizes = returns.new_zeros(len(names), *trailing).index_add(0, row, is_real.to(returns.dtype))
    index = row.reshape(-1, *[1] * len(trailing)).expand_as(returns)
    best = returns.new_full((len(names), *trailing), -torch.inf)
    best = best.scatter_reduce(0, index, torch.where(is_real, returns, -torch.inf), "amax")
    below_best = torch.where(is_real, returns - best[row], 0.0)
    return _Grouped(is_real, row, sizes, below_best)


def _sums(values: Tensor, items: _Grouped) -> Tensor:
    """Sums over the groups; `values` is 0 in padding."""
    return torch.zeros_like(items.sizes).index_add(0, items.row, values)


def _above_mean(items: _Grouped) -> Tensor:
    # Measured from the group's best, so that equal returns of any size give exactly 0.
    means = _sums(items.below_best, items) / items.sizes.clamp(min=1)
    return torch.where(items.is_real, items.below_best - means[items.row], 0.0)


def _divided(advantages: Tensor, deviations: Tensor, items: _Grouped) -> Tensor:
    """Advantages divided by the root mean square of their group's deviations."""
    squares = _sums(deviations.square(), items) / items.sizes.clamp(min=1)
    return advantages / (squares.sqrt() + EPSILON)[items.row]
