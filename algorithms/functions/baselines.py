"""Baselines: advantages without a critic, from comparing the rollouts of one task.

Axes: B tracks (one agent's turns in one episode each); T turns. A group is the G rollouts of one task by one agent.
`group[b]` is the number of b's group: any integers, in any order; groups may differ in size. `returns` is [B], or
[B, T] with the return from each turn on (`monte_carlo_returns`); then every turn is compared with the same turn of all
rollouts of its group. `is_real`, of the shape of `returns`, is True where a turn happened; padding, NaN included, is
never read, and every result is 0 there.

A rollout that has ended earns nothing more: it counts with a return of 0 in the later turns of the others. Left out, it
would take its part of the group away from later turns alone, and the gradient of each turn would be multiplied by
another factor (by the probability that another rollout gets as far, where the group has two). `group_size` names the
rollouts of every group, where some have no row at all because the agent never moved in them; they count with 0 too.

The four baselines differ in what they subtract. Normalization to zero mean makes them all the same; scaling alone
(`normalized` with subtract_mean=False, or divide_by_std) keeps them apart.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

EPSILON = 1e-6
"""Added to a standard deviation before dividing by it, in the unit of the rewards: it bounds how far rounding errors of
nearly equal returns can be scaled up."""


def raw_advantages(
    returns: Tensor,
    group: Tensor,
    is_real: Tensor | None = None,
    *,
    group_size: int | None = None,
    divide_by_std: bool = False,
    epsilon: float = EPSILON,
) -> Tensor:
    """Return without a baseline: no bias, most variance (MAREINFORCE).

        A = R

    Source: Williams (1992), REINFORCE.

    Args:
        returns: [B] or [B, T].
        group: [B] integers.
        is_real: of the shape of returns; None: all.
        group_size: G, rollouts per group, with or without a row; None: those with a row.
        divide_by_std: divide by the root mean square of the group's returns, their deviation from the baseline 0. The
            deviation from their mean would scale up the returns of a group of nearly equal ones.
        epsilon: added to that deviation.

    Returns:
        Of the shape of returns. Only these advantages change when a constant is added to every reward.

    Raises:
        ValueError: if the shapes disagree.
    """
    rollouts = _grouped(returns, group, is_real, group_size if divide_by_std else None, min_size=1)
    advantages = rollouts.returns
    if divide_by_std:
        advantages = advantages / (rollouts.root_mean_square(advantages) + epsilon)
    return rollouts.of_turns(advantages)


def group_mean_advantages(
    returns: Tensor,
    group: Tensor,
    is_real: Tensor | None = None,
    *,
    group_size: int | None = None,
    divide_by_std: bool = False,
    epsilon: float = EPSILON,
) -> Tensor:
    """Return minus the mean of its own group (MAGRPO).

        A[g] = R[g] - mean over g' of R[g']

    Source: MAGRPO (arXiv:2508.04652) after GRPO (arXiv:2402.03300). Division by the group's standard deviation is
    GRPO's; it weights tasks by their difficulty (arXiv:2503.20783), so it is off by default.

    Args:
        returns: [B] or [B, T].
        group: [B] integers.
        is_real: of the shape of returns; None: all.
        group_size: G, rollouts per group, with or without a row; None: those with a row.
        divide_by_std: divide by the group's sample standard deviation (`torch.std`), as GRPO and TRL do.
        epsilon: added to that deviation.

    Returns:
        Of the shape of returns; sums to 0 over each group, its ended rollouts included. Equal returns give exactly 0.
        The baseline holds 1 / G of the rollout's own return, which shrinks the expected gradient of every turn by the
        same factor 1 - 1 / G and does not turn it.

    Raises:
        ValueError: if shapes disagree, or if a group is a lone rollout, whose advantages would all silently be 0.
    """
    rollouts = _grouped(returns, group, is_real, group_size, min_size=2)
    return _advantages(rollouts, rollouts.above_mean(), divide_by_std, epsilon)


def leave_one_out_advantages(
    returns: Tensor,
    group: Tensor,
    is_real: Tensor | None = None,
    *,
    group_size: int | None = None,
    divide_by_std: bool = False,
    epsilon: float = EPSILON,
) -> Tensor:
    """Return minus the mean of the *other* rollouts of its group, which do not depend on it: no bias (MARLOO).

        A[g] = R[g] - sum over g' != g of R[g'] / (G - 1) = G / (G - 1) * (R[g] - mean)

    Unbiased in every turn, also where rollouts end at different ones. Source: RLOO (arXiv:2402.14740), Kool et al.
    (2019).

    Args:
        returns: [B] or [B, T].
        group: [B] integers.
        is_real: of the shape of returns; None: all.
        group_size: G, rollouts per group, with or without a row; None: those with a row.
        divide_by_std: divide by the group's sample standard deviation (`torch.std`), as GRPO and TRL do.
        epsilon: added to that deviation.

    Returns:
        Of the shape of returns. Equal returns give exactly 0. A turn that one rollout alone reached has its return as
        its advantage: the others' returns from there on are 0.

    Raises:
        ValueError: if shapes disagree, or if a group is a lone rollout, with no others to compare with.
    """
    rollouts = _grouped(returns, group, is_real, group_size, min_size=2)
    sizes = rollouts.sizes_of_rows()
    advantages = rollouts.above_mean() * sizes / (sizes - 1)
    return _advantages(rollouts, advantages, divide_by_std, epsilon)


def group_max_advantages(
    returns: Tensor,
    group: Tensor,
    is_real: Tensor | None = None,
    *,
    group_size: int | None = None,
    divide_by_std: bool = False,
    epsilon: float = EPSILON,
) -> Tensor:
    """Return minus the best return of its group: 0 for the best, below 0 for the others (MAReMax).

        A[g] = R[g] - max over g' of R[g']

    The gradient is biased, because the baseline depends on the rollout's own actions. Its expectation can point away
    from the true gradient: in an enumerated game of two agents whose episodes can end early, the cosine to the true
    gradient was -0.9985 for one agent and 0.993 for the other (groups of 2). ReMax (arXiv:2310.10505) subtracts the
    return of the greedy completion instead, which does not depend on the sample, and is unbiased.

    Args:
        returns: [B] or [B, T].
        group: [B] integers.
        is_real: of the shape of returns; None: all.
        group_size: G, rollouts per group, with or without a row; None: those with a row.
        divide_by_std: divide by the group's sample standard deviation (`torch.std`), as GRPO and TRL do.
        epsilon: added to that deviation.

    Returns:
        Of the shape of returns, never above 0. Where all returns are negative, the best rollout is one that has ended.

    Raises:
        ValueError: if shapes disagree, or if a group is a lone rollout, whose advantages would all silently be 0.
    """
    rollouts = _grouped(returns, group, is_real, group_size, min_size=2)
    return _advantages(rollouts, rollouts.below_best(), divide_by_std, epsilon)


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
    advantages: Tensor,
    is_real: Tensor,
    group: Tensor | None = None,
    *,
    subtract_mean: bool = True,
    epsilon: float = EPSILON,
) -> Tensor:
    """Advantages scaled to unit standard deviation, over the whole batch or within groups (per agent, per turn).

        (A - mean) / std,  or A / root mean square where the mean is kept

    Division by the root mean square keeps signs, and so keeps baselines apart that differ by a constant. A group of one
    has no deviation from its mean: its item is divided by the root mean square of the whole batch. Left as it is, one
    late turn would outweigh all others by the unit of the rewards.

    The standard deviation is the population's (division by n). Stable-Baselines3, CleanRL and TRL use `torch.std`
    (division by n - 1) here, which gives sqrt((n - 1) / n) times these advantages.

    Args:
        advantages: of any shape.
        is_real: of the same shape, bool.
        group: integers of the same shape; each group is normalized separately. None: all together.
        subtract_mean: also move the mean to 0.
        epsilon: added to the deviation.

    Returns:
        Of the shape of advantages. With subtract_mean, equal advantages of a group of two or more give exactly 0.

    Raises:
        ValueError: if the shapes disagree.
    """
    group = torch.zeros_like(is_real, dtype=torch.long) if group is None else group
    if not advantages.shape == is_real.shape == group.shape:
        raise ValueError(
            f"advantages {tuple(advantages.shape)}, is_real {tuple(is_real.shape)} and group {tuple(group.shape)} "
            "must have one shape"
        )
    values = advantages[is_real]
    items = _grouped(values, group[is_real], None, None, min_size=1)
    centred = items.above_mean() if subtract_mean else values
    scaled = centred / (items.root_mean_square(centred) + epsilon)
    if subtract_mean:
        of_batch = values / (values.square().mean().sqrt() + epsilon)
        scaled = torch.where(items.sizes_of_rows() == 1, of_batch, scaled)
    return torch.zeros_like(advantages).masked_scatter(is_real, scaled)


@dataclass(frozen=True, slots=True)
class _Groups:
    """Returns by group. Axes: B rows, then the rollouts without one; R groups; trailing axes as in the returns."""

    returns: Tensor  # [B + absent, ...], 0 where a rollout has ended
    is_real: Tensor  # [B, ...]
    row: Tensor  # [B + absent], number of the group
    sizes: Tensor  # [R]

    def sizes_of_rows(self) -> Tensor:
        """[B + absent, 1, ...] size of each one's group."""
        return self.sizes[self.row].view(-1, *[1] * (self.returns.dim() - 1))

    def below_best(self) -> Tensor:
        """Returns minus the largest of the group."""
        index = self.row.view(-1, *[1] * (self.returns.dim() - 1)).expand_as(self.returns)
        best = self.returns.new_full((len(self.sizes), *self.returns.shape[1:]), -torch.inf)
        return self.returns - best.scatter_reduce(0, index, self.returns, "amax")[self.row]

    def above_mean(self) -> Tensor:
        """Returns minus the mean of the group."""
        below_best = self.below_best()  # measured from the best, so that equal returns of any size give exactly 0
        return below_best - self.means(below_best)

    def root_mean_square(self, values: Tensor) -> Tensor:
        """Root of the mean square of values over each one's group."""
        return self.means(values.square()).sqrt()

    def means(self, values: Tensor) -> Tensor:
        """Mean of values over each one's group."""
        sums = values.new_zeros(len(self.sizes), *values.shape[1:]).index_add(0, self.row, values)
        return sums[self.row] / self.sizes_of_rows()

    def of_turns(self, values: Tensor) -> Tensor:
        """[B, ...] values of the turns that happened; 0 elsewhere."""
        return torch.where(self.is_real, values[: len(self.is_real)], 0.0)


def _grouped(returns: Tensor, group: Tensor, is_real: Tensor | None, group_size: int | None, min_size: int) -> _Groups:
    if group.shape != returns.shape[:1] or (is_real is not None and is_real.shape != returns.shape):
        shape = None if is_real is None else tuple(is_real.shape)
        raise ValueError(
            f"returns {tuple(returns.shape)} need one group for each row and is_real of their shape, "
            f"but got group {tuple(group.shape)} and is_real {shape}"
        )
    names, row, num_rows = torch.unique(group, return_inverse=True, return_counts=True)
    sizes = num_rows if group_size is None else torch.full_like(num_rows, group_size)
    if bool((num_rows > sizes).any()):
        raise ValueError(
            f"group {int(names[num_rows > sizes][0])} has {int(num_rows.max())} rows, but there are {group_size} "
            "rollouts per group"
        )
    if bool((sizes < min_size).any()):
        raise ValueError(
            f"group {int(names[sizes < min_size][0])} has 1 rollout, but this baseline compares the rollouts of a task "
            "with each other; give every group at least 2"
        )
    is_real = torch.ones_like(returns, dtype=torch.bool) if is_real is None else is_real
    absent = torch.repeat_interleave(torch.arange(len(names), device=row.device), sizes - num_rows)
    known = torch.where(is_real, returns, 0.0)
    known = torch.cat([known, known.new_zeros(len(absent), *known.shape[1:])])
    return _Groups(known, is_real, torch.cat([row, absent]), sizes)


def _advantages(groups: _Groups, advantages: Tensor, divide_by_std: bool, epsilon: float) -> Tensor:
    """The advantages of the turns that happened, divided by the group's sample standard deviation if asked for."""
    if divide_by_std:
        sizes = groups.sizes_of_rows().to(advantages.dtype)
        deviations = groups.root_mean_square(groups.above_mean()) * (sizes / (sizes - 1)).sqrt()
        advantages = advantages / (deviations + epsilon)
    return groups.of_turns(advantages)
