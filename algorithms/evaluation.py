"""Evaluation on held-out tasks: fixed seeds, greedy and sampled, with intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .episode import Episode
from .rollout import Plan, RolloutCollector
from .summary import Interval, bootstrap_interval, episode_metrics

# Far from what training draws by chance; where an environment has splits, its test tasks differ anyway.
FIRST_EVALUATION_SEED = 2**31


@dataclass(frozen=True, slots=True)
class EvaluationResult:
    """How a team plays."""

    episodes: Sequence[Episode]
    """In the order of their seeds."""
    team_return: Interval
    """Mean undiscounted team return, with its 95 % bootstrap interval over episodes."""
    metrics: dict[str, float]
    """Means, as of a training update."""

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
        collector: on held-out tasks; its count of episodes is set back, so that sampling repeats too.
        num_episodes: from seeds first_seed, first_seed + 1, …
        greedy: take the likeliest token; symmetric agents can get in each other's way then, so look at both.
    """
    collector.next_index = 0
    plans = [Plan(first_seed + i, group=i) for i in range(num_episodes)]
    episodes = collector.collect(plans, greedy=greedy)
    returns = [episode.team_return for episode in episodes]
    return EvaluationResult(episodes, bootstrap_interval(returns), episode_metrics(episodes))
