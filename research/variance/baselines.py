"""What is subtracted from returns: values of every history by each critic, of episodes that none of them learned from.

Axes: N episodes, T turns, A agents.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
import torch

from collm.agents.core import CriticInput, FittedCritic
from collm.algorithms.functions.advantages import monte_carlo_returns
from collm.algorithms.functions.losses import explained_variance
from collm.algorithms.learning.critic_learner import CriticLearner
from collm.algorithms.rollout.episode import Episode
from collm.algorithms.rollout.intervals import Floats

STEPS_BETWEEN_LOOKS = 10
PATIENCE = 4
"""Looks at held-back episodes without a better explained variance, after which a critic has learned what it can."""
MAX_LOOKS = 40


def returns_to_go(episode: Episode) -> list[float]:
    """Undiscounted team return from each turn on."""
    rewards = torch.tensor([episode.team_rewards], dtype=torch.float64)
    found: list[float] = monte_carlo_returns(rewards, torch.ones_like(rewards, dtype=torch.bool), 1.0)[0].tolist()
    return found


def group_mean_values(episodes: Sequence[Episode]) -> Floats:
    """[N, T] mean return to go of the other rollouts of the same task."""
    to_go = np.array([returns_to_go(episode) for episode in episodes])
    rows: dict[int, list[int]] = defaultdict(list)
    for row, episode in enumerate(episodes):
        rows[episode.group].append(row)
    values = np.zeros_like(to_go)
    for own in rows.values():
        values[own] = (to_go[own].sum(axis=0) - to_go[own]) / (len(own) - 1)
    return values


def progress(episode: Episode, metric: str = "metric/quality") -> list[float]:
    """How far the team had come before each turn, by a metric of its environment."""
    return [0.0, *(info[metric] for info in episode.infos[:-1])]


def table_values(known: Sequence[Episode], episodes: Sequence[Episode], metric: str = "metric/quality") -> Floats:
    """[N, T] mean return to go of the known episodes that had come as far at the same turn.

    The ideal critic of the joint history where how far the team has come is all of it that matters. What none of the
    known episodes has seen counts as the nearest that some have.
    """
    cells: dict[tuple[int, float], list[float]] = defaultdict(list)
    for episode in known:
        for turn, (far, to_go) in enumerate(zip(progress(episode, metric), returns_to_go(episode), strict=True)):
            cells[turn, round(far, 9)].append(to_go)
    means = {key: float(np.mean(values)) for key, values in cells.items()}
    seen = defaultdict(list)
    for turn, far in means:
        seen[turn].append(far)

    def value(turn: int, far: float) -> float:
        return means[turn, min(seen[turn], key=lambda other: abs(other - far))]

    return np.array(
        [[value(turn, round(far, 9)) for turn, far in enumerate(progress(each, metric))] for each in episodes]
    )


def fitted(learner: CriticLearner, inputs: Sequence[CriticInput], targets: torch.Tensor) -> int:
    """Let a critic learn until the explained variance of held-back inputs stops rising; returns its steps.

    The last quarter of the inputs is held back, and the critic keeps the weights with which it explained most of it. A
    critic without gradient steps is fitted to all inputs.

    Args:
        learner: the critic with its optimizer.
        inputs: of one length each.
        targets: [N * T] returns to go, input by input.
    """
    if isinstance(learner.critic, FittedCritic):
        learner.learn(inputs, targets)
        learner.replay.clear()
        return 0
    cut = len(inputs) * 3 // 4
    length = len(targets) // len(inputs)
    best, misses, looks = -np.inf, 0, 0
    kept = {name: weight.clone() for name, weight in learner.critic.state_dict().items()}
    while looks < MAX_LOOKS and misses < PATIENCE:
        for _ in range(-(-STEPS_BETWEEN_LOOKS // learner.config.critic_steps)):
            learner.replay.clear()  # the same episodes again, not beside themselves
            learner.learn(inputs[:cut], targets[: cut * length])
        looks += 1
        found = float(explained_variance(learner.values(inputs[cut:]), targets[cut * length :]))
        if found > best:
            best, misses = found, 0
            kept = {name: weight.clone() for name, weight in learner.critic.state_dict().items()}
        else:
            misses += 1
    learner.critic.load_state_dict(kept)
    learner.replay.clear()
    return looks * STEPS_BETWEEN_LOOKS


def explained_by_turn(values: Floats, episodes: Sequence[Episode]) -> list[float | None]:
    """Explained variance of the return to go, turn by turn; None where it does not vary.

    Args:
        values: [A, N, T], of which the agents' are averaged.
    """
    to_go = np.array([returns_to_go(episode) for episode in episodes])
    found: list[float | None] = []
    for turn in range(to_go.shape[1]):
        spread = to_go[:, turn].var()
        left = np.mean([(to_go[:, turn] - own[:, turn]).var() for own in values])
        found.append(float(1 - left / spread) if spread > 1e-12 else None)
    return found


def explained_share(values: Floats, episodes: Sequence[Episode]) -> float | None:
    """Explained variance of the returns to go, all turns together; None where they do not vary.

    Args:
        values: [A, N, T], of which the agents' are averaged.
    """
    to_go = np.array([returns_to_go(episode) for episode in episodes])
    spread = to_go.var(axis=0).sum()
    left = np.mean([(to_go - own).var(axis=0).sum() for own in values])
    return float(1 - left / spread) if spread > 1e-12 else None


def joint_inputs(episodes: Sequence[Episode], team: Sequence[str]) -> list[CriticInput]:
    return [episode.joint_input(team) for episode in episodes]


def own_inputs(episodes: Sequence[Episode], agent: str) -> list[CriticInput]:
    return [episode.own_input(agent) for episode in episodes]


def targets_of(episodes: Sequence[Episode]) -> torch.Tensor:
    """[N * T] returns to go, episode by episode."""
    return torch.tensor([value for episode in episodes for value in returns_to_go(episode)])


def learned_joint_values(
    critics: Mapping[str, CriticLearner], known: Sequence[Episode], episodes: Sequence[Episode], team: Sequence[str]
) -> Floats:
    """[A, N, T] values of a joint critic, the same for all agents."""
    learner = critics["joint"]
    fitted(learner, joint_inputs(known, team), targets_of(known))
    values = learner.values(joint_inputs(episodes, team)).double().numpy().reshape(len(episodes), -1)
    return np.stack([values] * len(team))


def learned_own_values(
    critics: Mapping[str, CriticLearner], known: Sequence[Episode], episodes: Sequence[Episode], team: Sequence[str]
) -> Floats:
    """[A, N, T] values of each agent's own critic."""
    found = []
    for agent in team:
        fitted(critics[agent], own_inputs(known, agent), targets_of(known))
        found.append(critics[agent].values(own_inputs(episodes, agent)).double().numpy().reshape(len(episodes), -1))
    return np.stack(found)
