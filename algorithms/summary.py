"""Episodes → numbers: means for a log line, intervals for a claim."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..agents.encoding import TokenTrace
from .episode import Episode


def episode_metrics(episodes: Sequence[Episode]) -> dict[str, float]:
    """Means over the episodes: returns (of those that ended), reward terms, metrics, lengths, entropy.

    A reward term is summed over an episode's turns, as the return is; a metric is averaged over them.
    """
    ended = [episode.team_return + episode.earlier_return for episode in episodes if episode.is_complete]
    metrics: dict[str, float] = {"num_episodes": float(len(ended))}
    if ended:
        metrics |= {"return": float(np.mean(ended)), "return_std": float(np.std(ended))}
    terms: dict[str, list[float]] = defaultdict(list)
    for episode in episodes:
        gathered: dict[str, list[float]] = defaultdict(list)
        for info in episode.infos:
            for name, value in info.items():
                gathered[name].append(value)
        for name, values in gathered.items():
            terms[name].append(sum(values) if name.startswith("reward/") else sum(values) / len(values))
    metrics |= {name: float(np.mean(values)) for name, values in terms.items()}
    turns = [turn for episode in episodes for track in episode.tracks.values() for turn in track]
    sampled = [turn.completion for turn in turns if len(turn.completion.logprobs)]
    metrics["turns"] = float(np.mean([episode.num_turns for episode in episodes]))
    if sampled:
        metrics["completion_tokens"] = float(np.mean([len(completion.logprobs) for completion in sampled]))
        metrics["entropy"] = float(np.mean(np.concatenate([completion.entropies for completion in sampled])))
        metrics["cut_share"] = float(np.mean([completion.is_cut for completion in sampled]))
    # Later prompts whose history an environment rewrote are tokenized anew, and cost a forward pass of their own.
    later = [turn.completion.trace for turn in turns if turn.time and isinstance(turn.completion.trace, TokenTrace)]
    if later:
        metrics["reencoded_share"] = float(np.mean([not trace.is_extension for trace in later]))
    return metrics


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean and where it may lie."""

    mean: float
    low: float
    high: float
    count: int

    def __str__(self) -> str:
        return f"{self.mean:.3f} [{self.low:.3f}, {self.high:.3f}]"


def bootstrap_interval(values: Sequence[float], *, confidence: float = 0.95, num_resamples: int = 5_000) -> Interval:
    """Mean with its percentile bootstrap interval (Efron and Tibshirani, 1993), from fixed resampling indices.

    Raises:
        ValueError: if there is no value.
    """
    if not len(values):
        raise ValueError("an interval needs at least one value")
    sample = np.asarray(values, dtype=np.float64)
    indices = np.random.default_rng(0).integers(len(sample), size=(num_resamples, len(sample)))
    means = sample[indices].mean(axis=1)
    tail = (1 - confidence) / 2
    low, high = np.quantile(means, [tail, 1 - tail])
    return Interval(float(sample.mean()), float(low), float(high), len(sample))
