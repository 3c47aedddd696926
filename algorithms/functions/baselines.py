"""Baselines: advantages that compare the rollouts of one task, without a critic.

Axes: B tracks (each contains one agent's turns in one episode), T turns. A group consists of the G rollouts of one
task. Arguments that the group baselines share:

    returns        [B], or [B, T] with the return from each turn to the end (`monte_carlo_returns`). Each turn is
                   compared with the same turn of the other rollouts.
    group          [B] index of each track's group: any integers, in any order. Groups may differ in size.
    is_real        shape of returns, True for turns, False for padding. Padding is never read, so it may be NaN. Every
                   result is 0 there. None: no padding.
    group_size     G, if rollouts have no row because the agent never acted in them. None: each group's number of rows.
    divide_by_std  divide by the group's sample standard deviation (`torch.std`), as GRPO and TRL do. This weights tasks
                   by their difficulty (arXiv:2503.20783).

Results have the shape of returns. `ValueError` is raised if shapes disagree. The return of a rollout that has ended, or
that has no row, is 0, because omitting such rollouts would change the scale of later turns' gradients. `normalized`
makes the results of all baselines equal, except with subtract_mean=False.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

EPSILON = 1e-6  # added to a standard deviation before division, in reward units; limits rounding errors
MAX_SPREAD = 2.0  # standard deviation of advantages that is not limited, in standard deviations of the returns


def raw_advantages(
    returns: Tensor,
    group: Tensor,
    is_real: Tensor | None = None,
    *,
    group_size: int | None = None,
    divide_by_std: bool = False,
) -> Tensor:
    """Return the returns as advantages, without a baseline (MAREINFORCE). Unbiased, but with the largest variance.

        A = R

    `divide_by_std` divides by the root mean square of the group's returns, which is the deviation from the baseline 0.
    A constant that is added to every reward changes only these advantages, not those of the other baselines. Source:
    Williams (1992), REINFORCE.
    """
    rollouts = _grouped(returns, group, is_real, group_size if divide_by_std else None, min_size=1)
    advantages = rollouts.returns
    if divide_by_std:
        advantages = advantages / (rollouts.root_mean_square(advantages) + EPSILON)
    return rollouts.of_turns(advantages)


def group_mean_advantages(
    returns: Tensor,
    group: Tensor,
    is_real: Tensor | None = None,
    *,
    group_size: int | None = None,
    divide_by_std: bool = False,
) -> Tensor:
    """Compute advantages as each return minus the mean return of the group of rollouts (MAGRPO).

        A[g] = R[g] - mean over g' of R[g']

    Advantages sum to 0 over each group, including ended rollouts. Equal returns give exactly 0. The mean contains the
    rollout's own return, which multiplies the expected gradient of every turn by 1 - 1 / G, for G rollouts per group.
    Raises `ValueError` if a group has one rollout, because all its advantages would be 0. Source: MAGRPO
    (arXiv:2508.04652) after GRPO (arXiv:2402.03300).
    """
    rollouts = _grouped(returns, group, is_real, group_size, min_size=2)
    return _advantages(rollouts, rollouts.above_mean(), divide_by_std)


def leave_one_out_advantages(
    returns: Tensor,
    group: Tensor,
    is_real: Tensor | None = None,
    *,
    group_size: int | None = None,
    divide_by_std: bool = False,
) -> Tensor:
    """Compute advantages as each return minus the mean return of the *other* rollouts of the group (MARLOO).

        A[g] = R[g] - sum over g' != g of R[g'] / (G - 1) = G / (G - 1) * (R[g] - mean)

    Unbiased in every turn, because the other rollouts do not depend on this rollout. Equal returns give exactly 0. If
    only one rollout reaches a turn, the advantage is the return, because the returns of ended rollouts are 0. Raises
    `ValueError` if a group has one rollout. Source: RLOO (arXiv:2402.14740), Kool et al. (2019).
    """
    rollouts = _grouped(returns, group, is_real, group_size, min_size=2)
    sizes = rollouts.sizes_of_rows()
    advantages = rollouts.above_mean() * sizes / (sizes - 1)
    return _advantages(rollouts, advantages, divide_by_std)


def trajectory_advantages(
    returns: Tensor,
    group: Tensor,
    is_real: Tensor | None = None,
    *,
    group_size: int | None = None,
    divide_by_std: bool = False,
    weighs_rollouts_equally: bool = False,
) -> Tensor:
    """Compare the returns of whole tracks; every turn of a track has the track's advantage.

        A[g, t] = R[g] - sum over g' of w[g'] * R[g'] / sum over g' of w[g']

    R[g] is the return from the agent's first turn on. w[g] is the agent's number of turns n[g], so that the mean is a
    mean over all turns of the agent in the group (Dr. MAS, arXiv:2602.08847). With `weighs_rollouts_equally`, w[g] is
    1, and the advantages of a track are multiplied by max(n) / n[g]. This is the expectation of M-GRPO's alignment
    (arXiv:2511.13288), which duplicates or drops random turns until every track has max(n) turns.

    `divide_by_std` divides by the root of sum w * (R - mean)^2 / (sum w - 1). Only rollouts in which the agent acts
    count, so `group_size` is not read. Equal returns give exactly 0.
    """
    is_real = torch.ones_like(returns, dtype=torch.bool) if is_real is None else is_real
    lengths = is_real.sum(dim=1)
    tracks = _grouped(torch.where(is_real, returns, 0.0)[:, 0], group, None, None, min_size=1)
    weights = torch.ones_like(tracks.returns) if weighs_rollouts_equally else lengths.to(returns.dtype)
    total = tracks.means(weights) * tracks.sizes_of_rows()
    below_best = tracks.below_best()
    advantages = below_best - tracks.means(weights * below_best) / tracks.means(weights)
    if divide_by_std:
        squares = tracks.means(weights * advantages.square()) * tracks.sizes_of_rows()
        advantages = advantages / ((squares / (total - 1).clamp(min=1)).sqrt() + EPSILON)
    if weighs_rollouts_equally:
        advantages = advantages * lengths.max() / lengths
    return torch.where(is_real, advantages[:, None], 0.0)


def moving_average_advantages(returns: Tensor, baseline: float, decay: float) -> tuple[Tensor, float]:
    """Subtract a moving average of earlier returns from each return [B]; returns [B] and the new average.

        A[g] = R[g] - b[g],  b[g + 1] = decay * b[g] + (1 - decay) * R[g]

    Unbiased, because b[g] does not depend on rollout g. Source: RAE of SPIRAL (arXiv:2506.24119) in its code, which
    reads the average before it updates it.
    """
    advantages = []
    for value in returns.tolist():
        advantages.append(value - baseline)
        baseline = decay * baseline + (1 - decay) * value
    return returns.new_tensor(advantages), baseline


def counterfactual_advantages(action_values: Tensor, probabilities: Tensor, chosen: Tensor) -> Tensor:
    """Subtract the mean value over an agent's replies from the value of the chosen reply; returns [N].

        A[n] = Q[n, chosen[n]] - sum over replies r of pi[n, r] * Q[n, r] / sum over r of pi[n, r]

    The replies of the other agents are the same in all Q of a row. Source: COMA (arXiv:1705.08926), equation 4.

    Args:
        action_values: [N, R], Q of each joint action in which the agent gives reply r.
        probabilities: [N, R], not negative, with a positive sum per row.
        chosen: [N] long, index of the reply that was given.
    """
    baseline = (probabilities * action_values).sum(dim=1) / probabilities.sum(dim=1)
    return action_values.gather(1, chosen[:, None]).squeeze(1) - baseline


def group_max_advantages(
    returns: Tensor,
    group: Tensor,
    is_real: Tensor | None = None,
    *,
    group_size: int | None = None,
    divide_by_std: bool = False,
) -> Tensor:
    """Compute advantages as each return minus the largest return of the group: 0 for the best rollout (MAReMax).

        A[g] = R[g] - max over g' of R[g']

    Biased, because the baseline depends on the rollout's own actions. The expected gradient can point away from the
    true gradient: in an enumerated game, their cosine was -0.9985 for one of two agents. ReMax (arXiv:2310.10505)
    subtracts the return of the greedy completion instead, and is unbiased. An ended rollout with its return of 0 is the
    best if all other returns are negative. Raises `ValueError` if a group has one rollout.
    """
    rollouts = _grouped(returns, group, is_real, group_size, min_size=2)
    return _advantages(rollouts, rollouts.below_best(), divide_by_std)


def cross_returns(joint_returns: Tensor) -> Tensor:
    """Average the returns of all joint actions that contain a completion; returns [P, N, G] for N agents.

        R_i[g] = mean of the joint returns over all joint actions in which agent i uses completion g

    `joint_returns` is [P, G, ..., G]: P tasks, then one axis per agent over the agent's G completions. Raises
    `ValueError` if there is no agent axis, or if the agents' numbers of completions differ.
    """
    sizes = joint_returns.shape[1:]
    num_agents = len(sizes)
    if num_agents == 0 or len(set(sizes)) != 1:
        raise ValueError(
            f"joint_returns has shape {tuple(joint_returns.shape)}, but needs an axis of tasks, then an axis per agent "
            "with the same number of completions"
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
) -> Tensor:
    """Scale advantages to unit standard deviation, over the whole batch or within groups (per agent, per turn).

        (A - mean) / std,  or A / root mean square without subtract_mean

    All tensors have one shape. The result is 0 where `is_real` is False (padding). Each `group` is normalized
    separately. None: all advantages together. Division by the root mean square keeps signs and the difference between
    baselines. With subtract_mean, equal advantages of a group of two or more give exactly 0. The only item of a group
    is divided by the batch's root mean square.

    The standard deviation is the population's (divisor n). Stable-Baselines3, CleanRL and TRL use `torch.std` (divisor
    n - 1), which gives sqrt(1-1/n) times these advantages.
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
    scaled = centred / (items.root_mean_square(centred) + EPSILON)
    if subtract_mean:
        of_batch = values / (values.square().mean().sqrt() + EPSILON)
        scaled = torch.where(items.sizes_of_rows() == 1, of_batch, scaled)
    return torch.zeros_like(advantages).masked_scatter(is_real, scaled)


def deviations(values: Tensor, group: Tensor) -> Tensor:
    """Subtract the group's mean from each value [N]. Equal values give exactly 0."""
    return _grouped(values, group, None, None, min_size=1).above_mean()


def advantage_limits(advantages: Tensor, group: Tensor, spread: float) -> Tensor:
    """Compute factors [N], 0..1, that keep `normalized` from scaling the errors of a critic to unit spread.

        c = min(1, 2 spread / std(A))

    `spread` is the largest standard deviation of comparable returns in the updates from which the critic learns, and A
    are `deviations` from the mean of comparable turns. c is 0 if all these returns are equal, so that a critic cannot
    know that one reply is better than another. c is 1 if the critic is not much worse than the mean return. c depends
    on the actions, which biases the gradient, as division by std(A) does.
    """
    items = _grouped(advantages, group, None, None, min_size=1)
    limits = MAX_SPREAD * spread / items.root_mean_square(items.returns)
    return limits.nan_to_num(nan=0.0).clamp(max=1.0)  # nan: nothing differs


@dataclass(frozen=True, slots=True)
class _Groups:
    """Rollouts with their groups, for baselines. Axes: B rows, then absent rollouts (no row); R groups."""

    returns: Tensor  # [B + absent, ...], 0 where a rollout has ended
    is_real: Tensor  # [B, ...]
    row: Tensor  # [B + absent], index of each rollout's group, 0..R - 1
    sizes: Tensor  # [R], rollouts per group

    def sizes_of_rows(self) -> Tensor:
        """Return the size of each rollout's group, in the shape [B + absent, 1, ...]."""
        return self.sizes[self.row].view(-1, *[1] * (self.returns.dim() - 1))

    def below_best(self) -> Tensor:
        """Subtract the largest return of the group from each return."""
        index = self.row.view(-1, *[1] * (self.returns.dim() - 1)).expand_as(self.returns)
        best = self.returns.new_full((len(self.sizes), *self.returns.shape[1:]), -torch.inf)
        return self.returns - best.scatter_reduce(0, index, self.returns, "amax")[self.row]

    def above_mean(self) -> Tensor:
        below_best = self.below_best()  # not `returns`: equal returns of any size then give exactly 0
        return below_best - self.means(below_best)

    def root_mean_square(self, values: Tensor) -> Tensor:
        return self.means(values.square()).sqrt()

    def means(self, values: Tensor) -> Tensor:
        """Return the mean of `values` over each rollout's group, with one entry per rollout."""
        sums = values.new_zeros(len(self.sizes), *values.shape[1:]).index_add(0, self.row, values)
        return sums[self.row] / self.sizes_of_rows()

    def of_turns(self, values: Tensor) -> Tensor:
        """Return the values [B, ...] of rollouts with a row, and 0 for padding."""
        return torch.where(self.is_real, values[: len(self.is_real)], 0.0)


def _grouped(returns: Tensor, group: Tensor, is_real: Tensor | None, group_size: int | None, min_size: int) -> _Groups:
    if group.shape != returns.shape[:1] or (is_real is not None and is_real.shape != returns.shape):
        shape = None if is_real is None else tuple(is_real.shape)
        raise ValueError(
            f"returns {tuple(returns.shape)} of a baseline need one group for each row and is_real of the same shape, "
            f"but got group {tuple(group.shape)} and is_real {shape}"
        )
    names, row, num_rows = torch.unique(group, return_inverse=True, return_counts=True)
    sizes = num_rows if group_size is None else torch.full_like(num_rows, group_size)
    if bool((num_rows > sizes).any()):
        raise ValueError(
            f"group {int(names[num_rows > sizes][0])} has {int(num_rows.max())} rows, but there are {group_size} "
            "rollouts per group; pass a larger group_size"
        )
    if bool((sizes < min_size).any()):
        raise ValueError(
            f"group {int(names[sizes < min_size][0])} has 1 rollout, but this baseline compares the rollouts of a "
            "group; give every group at least 2"
        )
    is_real = torch.ones_like(returns, dtype=torch.bool) if is_real is None else is_real
    absent = torch.repeat_interleave(torch.arange(len(names), device=row.device), sizes - num_rows)
    known = torch.where(is_real, returns, 0.0)
    known = torch.cat([known, known.new_zeros(len(absent), *known.shape[1:])])
    return _Groups(known, is_real, torch.cat([row, absent]), sizes)


def _advantages(groups: _Groups, advantages: Tensor, divide_by_std: bool) -> Tensor:
    if divide_by_std:
        sizes = groups.sizes_of_rows().to(advantages.dtype)
        deviations = groups.root_mean_square(groups.above_mean()) * (sizes / (sizes - 1)).sqrt()
        advantages = advantages / (deviations + EPSILON)
    return groups.of_turns(advantages)
