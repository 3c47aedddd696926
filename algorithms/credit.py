"""Episodes → what each policy learns: values, advantages and targets, turn by turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..agents.core import View
from .algorithm import ActorCritic, Algorithm
from .baselines import normalized
from .critic_learner import CriticLearner
from .episode import Episode
from .grids import Grid, agent_grid, joint_grid, of_agent
from .objectives import explained_variance


@dataclass(frozen=True, slots=True)
class Credit:
    """Of one agent's turns, in the order of the episodes. N turns."""

    advantages: Tensor  # [N]
    values: Tensor  # [N] in reward units; zeros without a critic
    targets: Tensor  # [N] in reward units; zeros without a critic


@dataclass(frozen=True, slots=True)
class Lesson:
    """What one critic learns from: for each view the values of its histories, then, for Q, of its actions."""

    views: Sequence[View]  # without a last history to bootstrap from
    targets: Tensor  # [N] flat
    values: Tensor  # [N] as estimated before learning


def assign_credit(
    algorithm: Algorithm,  # type: ignore[type-arg]
    episodes: Sequence[Episode],
    agents: Sequence[str],
    critics: Mapping[str, CriticLearner],
    team: Sequence[str] | None = None,
) -> tuple[dict[str, Credit], list[tuple[CriticLearner, Lesson]]]:
    """Credit every turn of every agent, by the algorithm's rule and the critics' values.

    Args:
        agents: those that learn.
        critics: by agent, where each reads its own history (agents that share a policy share the critic); under the
            name "joint", where one reads the joint history; empty, where there is none.
        team: all agents of the environment, in its order; None: those that learn.
    """
    if algorithm.critic_reads == "joint":
        credits, lessons = _joint(algorithm, episodes, agents, critics["joint"], team or agents)
    else:
        credits, lessons = _own(algorithm, episodes, agents, critics)
    return _normalized(algorithm, credits, episodes), lessons


def _joint(
    algorithm: Algorithm,  # type: ignore[type-arg]
    episodes: Sequence[Episode],
    agents: Sequence[str],
    critic: CriticLearner,
    team: Sequence[str],
) -> tuple[dict[str, Credit], list[tuple[CriticLearner, Lesson]]]:
    assert isinstance(algorithm, ActorCritic)
    has_q = algorithm.config.critic_type == "q"
    views = [episode.joint_view(team, reads_actions=has_q) for episode in episodes]
    grid = joint_grid(episodes, critic.values(views), has_action_values=has_q)
    advantages, targets = algorithm.advantages(grid), algorithm.targets(grid)
    credits = {
        agent: Credit(*(of_agent(joint, episodes, agent) for joint in (advantages, grid.values[:, :-1], targets)))
        for agent in agents
    }
    return credits, [(critic, _lesson(views, grid, targets))]


def _own(
    algorithm: Algorithm,  # type: ignore[type-arg]
    episodes: Sequence[Episode],
    agents: Sequence[str],
    critics: Mapping[str, CriticLearner],
) -> tuple[dict[str, Credit], list[tuple[CriticLearner, Lesson]]]:
    credits: dict[str, Credit] = {}
    lessons: dict[int, list[Lesson]] = {}
    for agent in agents:
        if not isinstance(algorithm, ActorCritic):
            grid = agent_grid(episodes, agent, None)
            advantages = algorithm.advantages(grid)[grid.is_real]
            credits[agent] = Credit(advantages, torch.zeros_like(advantages), torch.zeros_like(advantages))
            continue
        has_q = algorithm.config.critic_type == "q"
        played = [episode for episode in episodes if agent in episode.tracks]
        views = [episode.own_view(agent, reads_actions=has_q) for episode in played]
        grid = agent_grid(episodes, agent, critics[agent].values(views), has_action_values=has_q)
        advantages, targets = algorithm.advantages(grid), algorithm.targets(grid)
        credits[agent] = Credit(*(grid_of[grid.is_real] for grid_of in (advantages, grid.values[:, :-1], targets)))
        lessons.setdefault(id(critics[agent]), []).append(_lesson(views, grid, targets))
    by_id = {id(critic): critic for critic in critics.values()}
    return credits, [(by_id[key], _merged(pieces)) for key, pieces in lessons.items()]


def _lesson(views: Sequence[View], grid: Grid, targets: Tensor) -> Lesson:
    """V(h) and Q(h, a) have the same target: what came of the action that was taken."""
    lengths = grid.is_real.sum(dim=1).tolist()
    kept = [
        View(view.histories[:length], view.actions, view.completions)
        for view, length in zip(views, lengths, strict=True)
    ]
    expected, estimated = [], []
    for row, length in enumerate(lengths):
        expected.append(targets[row, :length])
        estimated.append(grid.values[row, :length])
        if grid.action_values is not None:
            expected.append(targets[row, :length])
            estimated.append(grid.action_values[row, :length])
    return Lesson(kept, torch.cat(expected), torch.cat(estimated))


def _merged(lessons: Sequence[Lesson]) -> Lesson:
    """The lessons of all agents that share a critic, as one."""
    views = [view for lesson in lessons for view in lesson.views]
    targets = torch.cat([lesson.targets for lesson in lessons])
    return Lesson(views, targets, torch.cat([lesson.values for lesson in lessons]))


def _normalized(
    algorithm: Algorithm,  # type: ignore[type-arg]
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
    scaled = normalized(flat, every, groups[mode], subtract_mean=algorithm.centers_advantages)
    pieces = torch.split(scaled, [len(credit.advantages) for credit in credits.values()])
    return {
        agent: Credit(piece, credit.values, credit.targets)
        for (agent, credit), piece in zip(credits.items(), pieces, strict=True)
    }


def critic_metrics(lessons: Sequence[tuple[CriticLearner, Lesson]]) -> dict[str, float]:
    """How well the critics foresaw their targets, before they learned from them."""
    if not lessons:
        return {}
    targets = torch.cat([lesson.targets for _, lesson in lessons])
    values = torch.cat([lesson.values for _, lesson in lessons])
    return {
        "explained_variance": float(explained_variance(values, targets)),
        "value_mean": float(values.mean()),
        "target_mean": float(targets.mean()),
    }
