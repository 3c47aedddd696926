"""Advantage estimators: how much better a turn was than expected. Pure, differentiable functions of tensors.

Axes: B tracks, T turns. A *track* is one agent's sequence of turns in one episode. Tracks are padded at the end to T.
Arguments that all functions share:

    rewards   [B, T], any unit; `rewards[b, t]` follows turn t. Every result has the shape and unit of rewards.
    values    [B, T + 1], in reward units; `values[b, t]` is V of the history before turn t, and
              `values[b, length of b]` is V of the history after the last turn: 0 if the episode terminated, V(final
              history) if it was truncated. The value before a turn must not depend on the action of this turn.
    is_real   [B, T] bool, True for turns, False for padding. Padding is never read, so it may be NaN. Every result is
              0 there.
    discount  gamma per turn, 0..1: a number, or [B, T]: the discount from each turn to the track's next turn.

All functions raise `ValueError` if the shapes disagree, padding precedes a turn, or an argument is out of range.
"""

from __future__ import annotations

from typing import TypeAlias

import torch
from torch import Tensor

from ..config import Estimator

Discount: TypeAlias = float | Tensor


def td_errors(rewards: Tensor, values: Tensor, is_real: Tensor, discount: Discount) -> Tensor:
    """Compute the TD error of each turn, [B, T].

        delta[t] = r[t] + discount * V[t + 1] - V[t]

    Source: Sutton and Barto, Reinforcement Learning (2018), section 6.1.
    """
    _check_grid(rewards, is_real, discount)
    _check_values(values, rewards)
    errors = rewards + discount * values[:, 1:] - values[:, :-1]
    return torch.where(is_real, errors, 0.0)


def gae(rewards: Tensor, values: Tensor, is_real: Tensor, discount: Discount, trace: float) -> Tensor:
    """Compute generalized advantage estimates (GAE), [B, T]: decayed sums of the TD errors of this and later turns.

        A[t] = sum over k >= 0 of (discount * trace)^k * delta[t + k]

    `trace` is GAE's lambda, 0..1. 0 gives TD errors, 1 the Monte Carlo return - V. Source: Schulman et al.
    (arXiv:1506.02438), equation 16.
    """
    if not 0.0 <= trace <= 1.0:
        raise ValueError(f"trace={trace}, the lambda of GAE, must be between 0 and 1")
    errors = td_errors(rewards, values, is_real, discount)
    # Padding comes after the last turn and has a TD error of 0, so it does not change the sum.
    advantage = errors.new_zeros(errors.shape[0])
    columns = []
    for turn in reversed(range(errors.shape[1])):
        advantage = errors[:, turn] + _of_turn(discount, turn) * trace * advantage
        columns.append(advantage)
    return torch.stack(columns[::-1], dim=1) if columns else errors


def n_step_advantages(rewards: Tensor, values: Tensor, is_real: Tensor, discount: Discount, num_steps: int) -> Tensor:
    """Compute n-step advantages, [B, T]: the next n rewards, plus the value after them, minus the value before them.

        A[t] = sum over k < m of discount^k * r[t + k] + discount^m * V[t + m] - V[t],  m = min(n, turns left)

    n is `num_steps` >= 1. 1 gives TD errors, n >= T the Monte Carlo return - V. Source: Mnih et al., A3C
    (arXiv:1602.01783), section 4.
    """
    if num_steps < 1:
        raise ValueError(f"num_steps={num_steps} of n-step advantages must be at least 1")
    errors = td_errors(rewards, values, is_real, discount)
    # The n-step advantage is a sum of discounted TD errors in which the inner values cancel.
    advantages = errors.clone()
    later = errors
    for step in range(1, min(num_steps, errors.shape[1])):
        if isinstance(discount, Tensor):
            later = discount[:, :-step] * later[:, 1:]
        else:
            later = discount**step * errors[:, step:]
        advantages[:, :-step] += later
    return torch.where(is_real, advantages, 0.0)


def monte_carlo_returns(
    rewards: Tensor, is_real: Tensor, discount: Discount, final_values: Tensor | None = None
) -> Tensor:
    """Compute Monte Carlo returns, [B, T]: the discounted sum of rewards from each turn to the end of the episode.

        G[t] = r[t] + discount * G[t + 1],  G[length] = the final value

    `final_values` [B] is V(final history) of episodes that were truncated, and 0 of terminated ones. None: 0 for all.
    """
    _check_grid(rewards, is_real, discount)
    to_go = rewards.new_zeros(rewards.shape[0]) if final_values is None else final_values
    if to_go.shape != rewards.shape[:1]:
        raise ValueError(
            f"final_values has shape {tuple(to_go.shape)}, but needs one value for each of {rewards.shape[0]} tracks"
        )
    columns = []
    for turn in reversed(range(rewards.shape[1])):
        to_go = torch.where(is_real[:, turn], rewards[:, turn] + _of_turn(discount, turn) * to_go, to_go)
        columns.append(torch.where(is_real[:, turn], to_go, 0.0))
    return torch.stack(columns[::-1], dim=1) if columns else rewards


def estimated_advantages(
    rewards: Tensor,
    values: Tensor,
    is_real: Tensor,
    discount: Discount,
    estimator: Estimator,
    trace: float = 0.95,
    num_steps: int = 1,
) -> Tensor:
    """Compute advantages [B, T] with the estimator "td", "n_step" (reads `num_steps`), "gae" or "monte_carlo"."""
    if estimator == "td":
        return td_errors(rewards, values, is_real, discount)
    if estimator == "n_step":
        return n_step_advantages(rewards, values, is_real, discount, num_steps)
    if estimator == "gae":
        return gae(rewards, values, is_real, discount, trace)
    if estimator == "monte_carlo":
        _check_grid(rewards, is_real, discount)
        _check_values(values, rewards)
        final_values = values.gather(1, is_real.sum(dim=1, keepdim=True)).squeeze(1)
        returns = monte_carlo_returns(rewards, is_real, discount, final_values)
        return torch.where(is_real, returns - values[:, :-1], 0.0)
    raise ValueError(f"estimator={estimator!r} must be one of td, n_step, gae, monte_carlo")


def critic_targets(
    rewards: Tensor,
    values: Tensor,
    is_real: Tensor,
    discount: Discount,
    estimator: Estimator,
    trace: float = 0.95,
    num_steps: int = 1,
) -> Tensor:
    """Compute the critic's regression targets [B, T]: `estimated_advantages` + V.

    "td" gives the one-step TD target r[t] + discount * V[t + 1], "gae" the lambda-return.
    """
    advantages = estimated_advantages(rewards, values, is_real, discount, estimator, trace, num_steps)
    return torch.where(is_real, advantages + values[:, :-1], 0.0)


def _check_grid(rewards: Tensor, is_real: Tensor, discount: Discount) -> None:
    if rewards.dim() != 2 or is_real.shape != rewards.shape or is_real.dtype != torch.bool:
        raise ValueError(
            f"rewards {tuple(rewards.shape)} and is_real {tuple(is_real.shape)} of {is_real.dtype} must both have "
            "the shape [tracks, turns], and is_real must be bool"
        )
    if bool((is_real[:, 1:] & ~is_real[:, :-1]).any()):
        raise ValueError("is_real is True for a turn after padding; pad the turns of every track at the end")
    if isinstance(discount, Tensor):
        if discount.shape != rewards.shape:
            raise ValueError(f"discount {tuple(discount.shape)} must be a number or have the shape of rewards")
    elif not 0.0 <= discount <= 1.0:
        raise ValueError(f"discount={discount} must be between 0 and 1")


def _of_turn(discount: Discount, turn: int) -> Discount:
    return discount[:, turn] if isinstance(discount, Tensor) else discount


def _check_values(values: Tensor, rewards: Tensor) -> None:
    needed = (rewards.shape[0], rewards.shape[1] + 1)
    if values.shape != needed:
        raise ValueError(
            f"values has shape {tuple(values.shape)}, but rewards {tuple(rewards.shape)} need {needed}: "
            "one value before each turn and one after the last"
        )
