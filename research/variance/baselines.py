"""Baselines that are subtracted from returns: each critic's values of histories that no critic learned from.

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
"""Training of a critic stops after this number of evaluations on held-out episodes without improvement."""
MAX_LOOKS = 40


def returns_to_go(episode: Episode) -> list[float]:
    """Return the undiscounted team return from each turn on."""
    rewards = torch.tensor([episode.team_rewards], dtype=torch.float64)
    found: list[float] = monte_carlo_returns(rewards, torch.ones_like(rewards, dtype=torch.bool), 1.0)[0].tolist()
    return found


def group_mean_values(episodes: Sequence[Episode]) -> Floats:
    """Return [N, T]: the mean return to go of the other rollouts of the same task."""
    to_go = np.array([returns_to_go(episode) for episode in episodes])
    rows: dict[int, list[int]] = defaultdict(list)
    for row, episode in enumerate(episodes):
        rows[episode.group].append(row)
    values = np.zeros_like(to_go)
    for own in rows.values():
        values[own] = (to_go[own].sum(axis=0) - to_go[own]) / (len(own) - 1)
    return values


def progress(episode: Episode, metric: str = "metric/quality") -> list[float]:
    """Return the team's progress before each turn, which is a metric of the environment."""
    return [0.0, *(info[metric] for info in episode.infos[:-1])]


def table_values(known: Sequence[Episode], episodes: Sequence[Episode], metric: str = "metric/quality") -> Floats:
    """Return [N, T]: the mean return to go of the known episodes with the same progress at the same turn.

    This is the ideal critic of the joint history if the return to go depends only on the progress. If no known episode
    has the same progress, the nearest known progress is used.
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
    """Train a critic until the explained variance of held-out inputs stops rising. Returns the number of steps.

    The last quarter of the inputs is held out, and the critic keeps the weights with the highest explained variance. A
    critic without gradient steps is fitted to all inputs.

    Args:
        learner: the critic with its optimizer.
        inputs: inputs with equal numbers of turns.
        targets: [N * T] returns to go, in the order of the inputs.
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
            learner.replay.clear()  # otherwise the replay would contain the same episodes several times
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
    """Return the explained variance of the return to go at each turn. None: the return to go does not vary.

    Args:
        values: [A, N, T]. The unexplained variance is averaged over agents.
    """
    to_go = np.array([returns_to_go(episode) for episode in episodes])
    found: list[float | None] = []
    for turn in range(to_go.shape[1]):
        spread = to_go[:, turn].var()
        left = np.mean([(to_go[:, turn] - own[:, turn]).var() for own in values])
        found.append(float(1 - left / spread) if spread > 1e-12 else None)
    return found


def explained_share(values: Floats, episodes: Sequence[Episode]) -> float | None:
    """Return the explained variance of the returns to go over all turns. None: the returns to go do not vary.

    Args:
        values: [A, N, T]. The unexplained variance is averaged over agents.
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
    """Return [N * T] returns to go, episode by episode."""
    return torch.tensor([value for episode in episodes for value in returns_to_go(episode)])


def learned_joint_values(
    critics: Mapping[str, CriticLearner], known: Sequence[Episode], episodes: Sequence[Episode], team: Sequence[str]
) -> Floats:
    """Train the joint critic on `known`. Returns its values [A, N, T] for `episodes`, equal for all agents."""
    learner = critics["joint"]
    fitted(learner, joint_inputs(known, team), targets_of(known))
    values = learner.values(joint_inputs(episodes, team)).double().numpy().reshape(len(episodes), -1)
    return np.stack([values] * len(team))


def learned_own_values(
    critics: Mapping[str, CriticLearner], known: Sequence[Episode], episodes: Sequence[Episode], team: Sequence[str]
) -> Floats:
    """Train each agent's critic on `known`. Returns the critics' values [A, N, T] for `episodes`."""
    found = []
    for agent in team:
        fitted(critics[agent], own_inputs(known, agent), targets_of(known))
        found.append(critics[agent].values(own_inputs(episodes, agent)).double().numpy().reshape(len(episodes), -1))
    return np.stack(found)
