"""Episodes → credit: the value, advantage and value target of each turn of each agent."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ...agents.core import CriticInput
from ..algorithm import Algorithm, Grid
from ..functions.advantages import monte_carlo_returns
from ..functions.baselines import normalized
from ..functions.losses import explained_variance
from ..rollout.episode import Episode
from .critic_learner import CriticLearner
from .grids import agent_grid, joint_grid, of_agent, with_team_ends


@dataclass(frozen=True, slots=True)
class Credit:
    """Advantages, values and targets of one agent's turns, in the order of the episodes. Axis: N turns."""

    advantages: Tensor  # [N] for the policy loss: normalized as `advantage_normalization` says
    raw_advantages: Tensor  # [N] in reward units, before normalization
    values: Tensor  # [N] in reward units; zeros without a critic
    targets: Tensor  # [N] in reward units; zeros without a critic
    returns: Tensor  # [N] discounted return of the shaped rewards; at a cut the value bootstraps it


@dataclass(frozen=True, slots=True)
class CriticBatch:
    """One critic's inputs and value targets: per input those of its histories, then, for Q, those of its actions."""

    inputs: Sequence[CriticInput]  # without the last history, which only bootstraps
    targets: Tensor  # [N] flat
    values: Tensor  # [N] as predicted before learning


def assign_credit(
    algorithm: Algorithm[Any],
    episodes: Sequence[Episode],
    agents: Sequence[str],
    critics: Mapping[str, CriticLearner],
    team: Sequence[str] | None = None,
) -> tuple[dict[str, Credit], list[tuple[CriticLearner, CriticBatch]]]:
    """Compute the credit of every turn of every agent, by the algorithm's credit rule and the critics' values.

    Args:
        agents: agents that learn.
        critics: by agent, where each critic reads an agent's own history (agents that share a policy share the
            critic); under the name "joint", where one reads the joint history; empty where there is none.
        team: all agents of the environment, in its order. None: the agents that learn.

    Returns:
        The credit of each agent's turns, and the batch that each critic learns from.
    """
    if algorithm.critic_reads == "joint":
        credits, batches = _joint(algorithm, episodes, agents, critics["joint"], team or agents)
    else:
        credits, batches = _own(algorithm, episodes, agents, critics)
    return _normalized(algorithm, credits, episodes), batches


def _joint(
    algorithm: Algorithm[Any],
    episodes: Sequence[Episode],
    agents: Sequence[str],
    critic: CriticLearner,
    team: Sequence[str],
) -> tuple[dict[str, Credit], list[tuple[CriticLearner, CriticBatch]]]:
    has_q = algorithm.config.critic_type == "q"
    inputs = [episode.joint_input(team, reads_actions=has_q) for episode in episodes]
    critic.critic.observe(inputs)
    grid = joint_grid(episodes, critic.values(inputs), has_action_values=has_q)
    targets = algorithm.targets(grid)
    fields = _fields(algorithm, grid, targets)
    credits = {agent: Credit(*(of_agent(joint, episodes, agent) for joint in fields)) for agent in agents}
    return credits, [(critic, _critic_batch(inputs, grid, targets))]


def _own(
    algorithm: Algorithm[Any],
    episodes: Sequence[Episode],
    agents: Sequence[str],
    critics: Mapping[str, CriticLearner],
) -> tuple[dict[str, Credit], list[tuple[CriticLearner, CriticBatch]]]:
    credits: dict[str, Credit] = {}
    batches: dict[int, list[CriticBatch]] = {}
    if algorithm.critic_reads == "nothing":
        for agent in agents:
            grid = agent_grid(episodes, agent, None)
            fields = _fields(algorithm, grid, torch.zeros_like(grid.rewards))
            credits[agent] = Credit(*(of_turns[grid.is_real] for of_turns in fields))
        return credits, []
    inputs = _own_inputs(algorithm, episodes, agents, critics)
    has_q = algorithm.config.critic_type == "q"
    grids = {
        agent: agent_grid(episodes, agent, critics[agent].values(inputs[agent]), has_action_values=has_q)
        for agent in agents
    }
    if algorithm.config.credited_reward == "team":
        grids = with_team_ends(grids, algorithm.config.discount)
    for agent, grid in grids.items():
        targets = algorithm.targets(grid)
        credits[agent] = Credit(*(of_turns[grid.is_real] for of_turns in _fields(algorithm, grid, targets)))
        batches.setdefault(id(critics[agent]), []).append(_critic_batch(inputs[agent], grid, targets))
    by_id = {id(critic): critic for critic in critics.values()}
    return credits, [(by_id[key], _merged(pieces)) for key, pieces in batches.items()]


def _own_inputs(
    algorithm: Algorithm[Any],
    episodes: Sequence[Episode],
    agents: Sequence[str],
    critics: Mapping[str, CriticLearner],
) -> dict[str, list[CriticInput]]:
    """Inputs of each agent's critic, after every critic has observed those of all agents that it serves."""
    has_q = algorithm.config.critic_type == "q"
    inputs = {
        agent: [episode.own_input(agent, reads_actions=has_q) for episode in episodes if agent in episode.tracks]
        for agent in agents
    }
    served: dict[int, list[CriticInput]] = defaultdict(list)
    for agent in agents:
        served[id(critics[agent])] += inputs[agent]
    by_id = {id(critic): critic for critic in critics.values()}
    for key, seen in served.items():
        by_id[key].critic.observe(seen)
    return inputs


def _fields(
    algorithm: Algorithm[Any],
    grid: Grid,
    targets: Tensor,
) -> tuple[Tensor, ...]:
    """The fields of `Credit` as grids [B, T], before normalization."""
    final_values = grid.values.gather(1, grid.is_real.sum(dim=1, keepdim=True)).squeeze(1)
    returns = monte_carlo_returns(grid.rewards, grid.is_real, algorithm.config.discount, final_values)
    advantages = algorithm.advantages(grid)
    return advantages, advantages, grid.values[:, :-1], targets, returns


def _critic_batch(inputs: Sequence[CriticInput], grid: Grid, targets: Tensor) -> CriticBatch:
    """V(h) and Q(h, a) have the same target: the return after the action that was taken."""
    lengths = grid.is_real.sum(dim=1).tolist()
    kept = [
        CriticInput(item.histories[:length], item.actions, item.completions)
        for item, length in zip(inputs, lengths, strict=True)
    ]
    expected, estimated = [], []
    for row, length in enumerate(lengths):
        expected.append(targets[row, :length])
        estimated.append(grid.values[row, :length])
        if grid.action_values is not None:
            expected.append(targets[row, :length])
            estimated.append(grid.action_values[row, :length])
    return CriticBatch(kept, torch.cat(expected), torch.cat(estimated))


def _merged(batches: Sequence[CriticBatch]) -> CriticBatch:
    """The batches of all agents that share a critic, as one."""
    inputs = [item for batch in batches for item in batch.inputs]
    targets = torch.cat([batch.targets for batch in batches])
    return CriticBatch(inputs, targets, torch.cat([batch.values for batch in batches]))


def _normalized(
    algorithm: Algorithm[Any],
    credits: Mapping[str, Credit],
    episodes: Sequence[Episode],
) -> dict[str, Credit]:
    mode = algorithm.config.advantage_normalization
    if mode == "none":
        return dict(credits)
    number = torch.cat([torch.full_like(credit.values, i) for i, credit in enumerate(credits.values())]).long()
    times = torch.tensor(
        [turn.time for agent in credits for episode in episodes for turn in episode.tracks.get(agent, ())]
    )
    groups = {
        "batch": torch.zeros_like(times),
        "agent": number,
        "turn": times,
        "agent_turn": number * (int(times.max()) + 1) + times,
    }
    flat = torch.cat([credit.advantages for credit in credits.values()])
    every = torch.ones_like(flat, dtype=torch.bool)
    scaled = normalized(
        flat,
        every,
        groups[mode],
        subtract_mean=algorithm.centers_advantages,
    )
    pieces = torch.split(scaled, [len(credit.advantages) for credit in credits.values()])
    return {
        agent: replace(credit, advantages=piece) for (agent, credit), piece in zip(credits.items(), pieces, strict=True)
    }


def critic_metrics(batches: Sequence[tuple[CriticLearner, CriticBatch]]) -> dict[str, float]:
    """Explained variance and means of the critics' predictions and targets, before learning from them."""
    if not batches:
        return {}
    targets = torch.cat([batch.targets for _, batch in batches])
    values = torch.cat([batch.values for _, batch in batches])
    return {
        "explained_variance": float(explained_variance(values, targets)),
        "value_mean": float(values.mean()),
        "target_mean": float(targets.mean()),
    }
