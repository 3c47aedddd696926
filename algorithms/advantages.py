"""Credit: how much better a turn went than expected. Pure functions of tensors; no models, optimizers or devices.

Axes: B tracks, T turns. A *track* is one agent's way through one episode. Tracks differ in length and are padded at
the end to T; `is_real[b, t]` is True where turn t of track b happened. What stands in the padding, NaN included, is
never read, and every result is 0 there.

`rewards[b, t]` follows turn t. `values[b, t]` is the value before it, and `values[b, length of b]` the value of what
comes after the last turn: 0 where the episode terminated, V(final history) where it was truncated. The caller fills
it in, so one rule serves both ends. Values must not depend on the action of their own turn: with an exact Q(h, a) in
their place every TD error is zero on average, and nothing is learned.

Nothing is detached: compute under `torch.no_grad()` what should carry no gradient. The baselines of groups of rollouts
of one task stand in `baselines.py`.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

Estimator = Literal["td", "n_step", "gae", "monte_carlo"]


def td_errors(rewards: Tensor, values: Tensor, is_real: Tensor, discount: float) -> Tensor:
    """How much one turn changed what is expected.

        delta[t] = r[t] + discount * V[t + 1] - V[t]

    Source: Sutton and Barto, Reinforcement Learning (2018), section 6.1.

    Args:
        rewards: [B, T].
        values: [B, T + 1], 0 after a terminal end.
        is_real: [B, T] bool.
        discount: of one turn, 0..1.

    Returns:
        [B, T], in reward units.

    Raises:
        ValueError: if the shapes disagree, padding precedes a turn, or the discount leaves 0..1.
    """
    _check_grid(rewards, is_real, discount)
    _check_values(values, rewards)
    errors = rewards + discount * values[:, 1:] - values[:, :-1]
    return torch.where(is_real, errors, 0.0)


def td_targets(rewards: Tensor, values: Tensor, is_real: Tensor, discount: float) -> Tensor:
    """What one step of experience says a history is worth: r[t] + discount * V[t + 1]; [B, T]."""
    _check_grid(rewards, is_real, discount)
    _check_values(values, rewards)
    return torch.where(is_real, rewards + discount * values[:, 1:], 0.0)


def gae(rewards: Tensor, values: Tensor, is_real: Tensor, discount: float, trace: float) -> Tensor:
    """Generalized advantage estimate: TD errors of this and all later turns, fading with distance.

        A[t] = sum over k >= 0 of (discount * trace)^k * delta[t + k]

    Source: Schulman et al. (arXiv:1506.02438), equation 16.

    Args:
        rewards: [B, T].
        values: [B, T + 1], 0 after a terminal end.
        is_real: [B, T] bool.
        discount: of one turn, 0..1.
        trace: lambda, 0..1; 0 trusts the critic (TD errors), 1 trusts the rewards (Monte Carlo return - V).

    Returns:
        [B, T], in reward units.

    Raises:
        ValueError: if the shapes disagree, padding precedes a turn, or discount or trace leave 0..1.
    """
    if not 0.0 <= trace <= 1.0:
        raise ValueError(f"trace is {trace}, but must lie in 0..1")
    errors = td_errors(rewards, values, is_real, discount)
    # Padding has error 0 and lies behind the last turn, so it adds nothing on the way back.
    advantage = errors.new_zeros(errors.shape[0])
    columns = []
    for turn in reversed(range(errors.shape[1])):
        advantage = errors[:, turn] + discount * trace * advantage
        columns.append(advantage)
    return torch.stack(columns[::-1], dim=1) if columns else errors


def lambda_returns(rewards: Tensor, values: Tensor, is_real: Tensor, discount: float, trace: float) -> Tensor:
    """The critic's target under a trace: gae + V; [B, T]. Trace 0 gives `td_targets`, 1 the Monte Carlo return."""
    return _above_values(gae(rewards, values, is_real, discount, trace), values, is_real)


def n_step_advantages(rewards: Tensor, values: Tensor, is_real: Tensor, discount: float, num_steps: int) -> Tensor:
    """The rewards of the next n turns and the value after them, above the value now.

        A[t] = sum over k < m of discount^k * r[t + k] + discount^m * V[t + m] - V[t],  m = min(n, turns left)

    Source: Mnih et al., A3C (arXiv:1602.01783), section 4.

    Args:
        rewards: [B, T].
        values: [B, T + 1], 0 after a terminal end.
        is_real: [B, T] bool.
        discount: of one turn, 0..1.
        num_steps: n >= 1; 1 gives TD errors, n >= T the Monte Carlo return - V.

    Returns:
        [B, T], in reward units.

    Raises:
        ValueError: as `td_errors`, or if num_steps < 1.
    """
    if num_steps < 1:
        raise ValueError(f"num_steps is {num_steps}, but an n-step advantage looks at least 1 turn ahead")
    errors = td_errors(rewards, values, is_real, discount)
    # The n-step advantage is a sum of discounted TD errors in which the inner values cancel.
    advantages = errors.clone()
    for step in range(1, min(num_steps, errors.shape[1])):
        advantages[:, :-step] += discount**step * errors[:, step:]
    return torch.where(is_real, advantages, 0.0)


def monte_carlo_returns(
    rewards: Tensor, is_real: Tensor, discount: float, final_values: Tensor | None = None
) -> Tensor:
    """Discounted reward from each turn to the end.

        G[t] = r[t] + discount * G[t + 1],  G[length] = the final value

    Args:
        rewards: [B, T].
        is_real: [B, T] bool.
        discount: of one turn, 0..1.
        final_values: [B], what follows the last turn: 0 after a terminal end, V(final history) after a truncated one.
            None: 0 for all, which is what methods without a critic can do.

    Returns:
        [B, T], in reward units.

    Raises:
        ValueError: if the shapes disagree, padding precedes a turn, or the discount leaves 0..1.
    """
    _check_grid(rewards, is_real, discount)
    to_go = rewards.new_zeros(rewards.shape[0]) if final_values is None else final_values
    if to_go.shape != rewards.shape[:1]:
        raise ValueError(f"final_values has shape {tuple(to_go.shape)}, but there are {rewards.shape[0]} tracks")
    columns = []
    for turn in reversed(range(rewards.shape[1])):
        to_go = torch.where(is_real[:, turn], rewards[:, turn] + discount * to_go, to_go)
        columns.append(torch.where(is_real[:, turn], to_go, 0.0))
    return torch.stack(columns[::-1], dim=1) if columns else rewards


def estimated_advantages(
    rewards: Tensor,
    values: Tensor,
    is_real: Tensor,
    discount: float,
    estimator: Estimator,
    trace: float = 0.95,
    num_steps: int = 1,
) -> Tensor:
    """Advantages by the estimator of that name; the one choice that all actor-critic methods share.

    Args:
        rewards: [B, T].
        values: [B, T + 1], 0 after a terminal end.
        is_real: [B, T] bool.
        discount: of one turn, 0..1.
        estimator: "td", "n_step", "gae" or "monte_carlo".
        trace: lambda, read by "gae" alone.
        num_steps: n, read by "n_step" alone.

    Returns:
        [B, T], in reward units.

    Raises:
        ValueError: if there is no estimator of that name, or as the estimator itself.
    """
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
    raise ValueError(f"estimator is {estimator!r}; choose one of td, n_step, gae, monte_carlo")


def critic_targets(
    rewards: Tensor,
    values: Tensor,
    is_real: Tensor,
    discount: float,
    estimator: Estimator,
    trace: float = 0.95,
    num_steps: int = 1,
) -> Tensor:
    """What the critic should have said: `estimated_advantages` + V; [B, T]. The two may use different estimators."""
    advantages = estimated_advantages(rewards, values, is_real, discount, estimator, trace, num_steps)
    return _above_values(advantages, values, is_real)


def _above_values(advantages: Tensor, values: Tensor, is_real: Tensor) -> Tensor:
    return torch.where(is_real, advantages + values[:, :-1], 0.0)


def _check_grid(rewards: Tensor, is_real: Tensor, discount: float) -> None:
    if rewards.dim() != 2 or is_real.shape != rewards.shape or is_real.dtype != torch.bool:
        raise ValueError(
            f"rewards {tuple(rewards.shape)} and is_real {tuple(is_real.shape)} of {is_real.dtype} must be one grid "
            "[B, T], is_real of bool"
        )
    if bool((is_real[:, 1:] & ~is_real[:, :-1]).any()):
        raise ValueError("is_real has a turn behind padding; pad every track at its end")
    if not 0.0 <= discount <= 1.0:
        raise ValueError(f"discount is {discount}, but must lie in 0..1")


def _check_values(values: Tensor, rewards: Tensor) -> None:
    needed = (rewards.shape[0], rewards.shape[1] + 1)
    if values.shape != needed:
        raise ValueError(
            f"values has shape {tuple(values.shape)}, but rewards {tuple(rewards.shape)} need {needed}: "
            "one value before each turn and one after the last"
        )
