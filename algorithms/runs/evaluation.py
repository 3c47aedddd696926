"""Evaluation on held-out tasks: fixed seeds, greedy and sampled, with intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..rollout.collector import Plan, RolloutCollector
from ..rollout.episode import Episode
from ..rollout.intervals import Interval, bootstrap_interval
from ..rollout.summary import episode_metrics

# Far from what training draws by chance; where an environment has splits, its test tasks differ anyway.
FIRST_EVALUATION_SEED = 2**31


@dataclass(frozen=True, slots=True)
class EvaluationResult:
    """Episodes of a team on held-out tasks, with their statistics."""

    episodes: Sequence[Episode]
    """Episodes in the order of their seeds."""
    team_return: Interval
    """Mean undiscounted team return, with its 95 % bootstrap interval over episodes."""
    metrics: dict[str, float]
    """Means over the episodes, under the names of a training update's metrics."""

    @property
    def best(self) -> Episode:
        return max(self.episodes, key=lambda episode: episode.team_return)

    @property
    def worst(self) -> Episode:
        return min(self.episodes, key=lambda episode: episode.team_return)


def evaluate(
    collector: RolloutCollector, num_episodes: int, *, greedy: bool, first_seed: int = FIRST_EVALUATION_SEED
) -> EvaluationResult:
    """Play the same tasks in the same order at every call.

    Args:
        collector: collector on held-out tasks; its count of episodes is reset, so that sampling repeats too.
        num_episodes: number of tasks, from seeds first_seed, first_seed + 1, …
        greedy: take the likeliest token; symmetric agents can then block each other, so report both ways.
        first_seed: seed of the first task.
    """
    collector.next_index = 0
    plans = [Plan(first_seed + i, group=i) for i in range(num_episodes)]
    episodes = collector.collect(plans, greedy=greedy)
    returns = [episode.team_return for episode in episodes]
    return EvaluationResult(episodes, bootstrap_interval(returns), episode_metrics(episodes))
