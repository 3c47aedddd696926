"""Episodes → numbers: reward terms and metrics of each, and the means of an update's log line."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from ...agents.encoding import TokenRecord
from .episode import Episode


def episode_metrics(episodes: Sequence[Episode]) -> dict[str, float]:
    """Means over the episodes: returns (of those that ended), reward terms, metrics, lengths, entropy."""
    ended = [episode.team_return + episode.earlier_return for episode in episodes if episode.is_complete]
    metrics: dict[str, float] = {"num_episodes": float(len(ended))}
    if ended:
        with np.errstate(over="ignore"):  # inf says it: rewards may be as large as floats are
            metrics |= {"return": float(np.mean(ended)), "return_std": float(np.std(ended))}
    terms: dict[str, list[float]] = defaultdict(list)
    for episode in episodes:
        for name, value in episode_terms(episode).items():
            terms[name].append(value)
    metrics |= {name: float(np.mean(values)) for name, values in terms.items()}
    turns = [turn for episode in episodes for track in episode.tracks.values() for turn in track]
    sampled = [turn.completion for turn in turns if len(turn.completion.logprobs)]
    metrics["turns"] = float(np.mean([episode.num_turns for episode in episodes]))
    if sampled:
        metrics["completion_tokens"] = float(np.mean([len(completion.logprobs) for completion in sampled]))
        metrics["entropy"] = float(np.mean(np.concatenate([completion.entropies for completion in sampled])))
        metrics["cut_share"] = float(np.mean([completion.is_cut for completion in sampled]))
    # Later prompts whose history the environment rewrote are tokenized anew and cost a forward pass of their own.
    later = [turn.completion.tokens for turn in turns if turn.time and isinstance(turn.completion.tokens, TokenRecord)]
    if later:
        metrics["reencoded_share"] = float(np.mean([not tokens.is_extension for tokens in later]))
    return metrics


def episode_terms(episode: Episode) -> dict[str, float]:
    """Reward terms of an episode, summed over its turns like its return, and its metrics, averaged over them."""
    gathered: dict[str, list[float]] = defaultdict(list)
    for info in episode.infos:
        for name, value in info.items():
            gathered[name].append(value)
    return {
        name: sum(values) if name.startswith("reward/") else sum(values) / len(values)
        for name, values in gathered.items()
    }
