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
        metrics |= equal_returns(episodes)
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
        entropies = np.concatenate([completion.entropies for completion in sampled])
        if len(entropies):  # none of what servers sample for ranks that share weights, in evaluations
            metrics["entropy"] = float(np.mean(entropies))
        metrics["cut_share"] = float(np.mean([completion.is_cut for completion in sampled]))
    # Later prompts whose history the environment rewrote are tokenized anew and cost a forward pass of their own.
    later = [turn.completion.tokens for turn in turns if turn.time and isinstance(turn.completion.tokens, TokenRecord)]
    if later:
        metrics["reencoded_share"] = float(np.mean([not tokens.is_extension for tokens in later]))
    return metrics


def equal_returns(episodes: Sequence[Episode]) -> dict[str, float]:
    """`equal_returns`: the share of groups whose episodes all have the same return, from which nothing is learned.

    A group is the rollouts of one task; where each task is played once, all episodes that ended are one. Nothing where
    no group has two episodes that ended.
    """
    groups: dict[int, list[float]] = defaultdict(list)
    for episode in episodes:
        if episode.is_complete:
            groups[episode.group].append(episode.team_return + episode.earlier_return)
    compared = [returns for returns in groups.values() if len(returns) > 1]
    if not compared and len(groups) > 1:
        compared = [[value for returns in groups.values() for value in returns]]
    if not compared:
        return {}
    spreads = [max(returns) - min(returns) for returns in compared]
    sizes = [max(map(abs, returns)) for returns in compared]
    return {
        "equal_returns": float(np.mean([spread <= 1e-9 * size for spread, size in zip(spreads, sizes, strict=True)]))
    }


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
