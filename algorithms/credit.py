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
    """What one critic learns from."""

    views: Sequence[View]  # without a last history to bootstrap from
    targets: Tensor  # [N] flat
    values: Tensor  # [N] as estimated before learning


def assign_credit(
    algorithm: Algorithm,  # type: ignore[type-arg]
    episodes: Sequence[Episode],
    agents: Sequence[str],
    critics: Mapping[str, CriticLearner],
) -> tuple[dict[str, Credit], list[tuple[CriticLearner, Lesson]]]:
    """Credit every turn of every agent, by the algorithm's rule and the critics' values.

    Args:
        critics: by agent, where each reads its own history (agents that share a policy share the critic); under the
            name "joint", where one reads the joint history; empty, where there is none.
    """
    if algorithm.critic_reads == "joint":
        credits, lessons = _joint(algorithm, episodes, agents, critics["joint"])
    else:
        credits, lessons = _own(algorithm, episodes, agents, critics)
    return _normalized(algorithm, credits, episodes), lessons


def _joint(
    algorithm: Algorithm,  # type: ignore[type-arg]
    episodes: Sequence[Episode],
    agents: Sequence[str],
    critic: CriticLearner,
) -> tuple[dict[str, Credit], list[tuple[CriticLearner, Lesson]]]:
    assert isinstance(algorithm, ActorCritic)
    reads_actions = algorithm.config.critic_type == "q"
    views = [episode.joint_view(reads_actions=reads_actions) for episode in episodes]
    grid = joint_grid(episodes, critic.values(views), bootstraps=not reads_actions)
    advantages, targets, values = algorithm.advantages(grid), algorithm.targets(grid), grid.values[:, :-1]
    credits = {
        agent: Credit(*(of_agent(joint, episodes, agent) for joint in (advantages, values, targets)))
        for agent in agents
    }
    lesson = Lesson(_without_last(views, grid), targets[grid.is_real], values[grid.is_real])
    return credits, [(critic, lesson)]


def _own(
    algorithm: Algorithm,  # type: ignore[type-arg]
    episodes: Sequence[Episode],
    agents: Sequence[str],
    critics: Mapping[str, CriticLearner],
) -> tuple[dict[str, Credit], list[tuple[CriticLearner, Lesson]]]:
    credits: dict[str, Credit] = {}
    lessons: dict[int, list[Lesson]] = {}
    for agent in agents:
        views: list[View] = []
        estimates = None
        reads_actions = isinstance(algorithm, ActorCritic) and algorithm.config.critic_type == "q"
        if critics:
            played = [episode for episode in episodes if agent in episode.tracks]
            views = [episode.own_view(agent, reads_actions=reads_actions) for episode in played]
            estimates = critics[agent].values(views)
        grid = agent_grid(episodes, agent, estimates, bootstraps=not reads_actions)
        advantages, values = algorithm.advantages(grid)[grid.is_real], grid.values[:, :-1][grid.is_real]
        targets = torch.zeros_like(values)
        if isinstance(algorithm, ActorCritic):
            targets = algorithm.targets(grid)[grid.is_real]
            lesson = Lesson(_without_last(views, grid), targets, values)
            lessons.setdefault(id(critics[agent]), []).append(lesson)
        credits[agent] = Credit(advantages, values, targets)
    by_id = {id(critic): critic for critic in critics.values()}
    return credits, [(by_id[key], _merged(pieces)) for key, pieces in lessons.items()]


def _merged(lessons: Sequence[Lesson]) -> Lesson:
    """The lessons of all agents that share a critic, as one."""
    views = [view for lesson in lessons for view in lesson.views]
    targets = torch.cat([lesson.targets for lesson in lessons])
    return Lesson(views, targets, torch.cat([lesson.values for lesson in lessons]))


def _without_last(views: Sequence[View], grid: Grid) -> list[View]:
    lengths = grid.is_real.sum(dim=1).tolist()
    return [
        View(view.histories[:length], view.actions, view.completions)
        for view, length in zip(views, lengths, strict=True)
    ]


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
    group = {"batch": torch.zeros_like(times), "agent": number, "turn": times}[mode]
    flat = torch.cat([credit.advantages for credit in credits.values()])
    every = torch.ones_like(flat, dtype=torch.bool)
    scaled = normalized(flat, every, group, subtract_mean=algorithm.centers_advantages)
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
