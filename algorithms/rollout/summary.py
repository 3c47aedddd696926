"""Metrics of episodes: reward terms and metrics per episode, and their means per update."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Literal

import numpy as np

from ...agents.encoding import TokenRecord
from ...envs.core import Interests
from .episode import Episode
from .welfare import welfare


def episode_metrics(
    episodes: Sequence[Episode],
    credited_reward: Literal["team", "own"] | None = None,
    interests: Interests = "common",
) -> dict[str, float]:
    """Compute means over episodes: returns (completed episodes only), reward terms, metrics, lengths, entropy.

    Args:
        episodes: episodes or segments of one update or evaluation.
        credited_reward: reward that the agents learn from; see `equal_returns`.
        interests: interests of the environment; see `agent_metrics`.
    """
    ended = [episode.team_return + episode.earlier_return for episode in episodes if episode.is_complete]
    metrics: dict[str, float] = {"num_episodes": float(len(ended))}
    if ended:
        with np.errstate(over="ignore"):  # an overflow of very large rewards is logged as inf
            metrics |= {"return": float(np.mean(ended)), "return_std": float(np.std(ended))}
        metrics |= equal_returns(episodes, credited_reward) | agent_metrics(episodes, interests)
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
        if len(entropies):  # servers return no entropies in evaluations if ranks shard the weights
            metrics["entropy"] = float(np.mean(entropies))
        metrics["cut_share"] = float(np.mean([completion.is_cut for completion in sampled]))
    # A later prompt that does not extend the tokens of the previous turn costs a separate forward pass.
    later = [turn.completion.tokens for turn in turns if turn.time and isinstance(turn.completion.tokens, TokenRecord)]
    if later:
        metrics["reencoded_share"] = float(np.mean([not tokens.is_extension for tokens in later]))
    return metrics


def agent_returns(episodes: Sequence[Episode], interests: Interests) -> dict[str, list[float]]:
    """Return each agent's return in each completed episode, or {} if the agents have common interests or one acts."""
    if interests == "common":
        return {}
    ended = [episode.own_returns for episode in episodes if episode.is_complete]
    agents = sorted({agent for returns in ended for agent in returns})
    return {agent: [returns.get(agent, 0.0) for returns in ended] for agent in agents} if len(agents) > 1 else {}


def agent_metrics(episodes: Sequence[Episode], interests: Interests) -> dict[str, float]:
    """Compute the mean return of each agent, `return/<agent>`, unless the agents have common interests.

    With mixed interests, also `welfare/<name>` of these means; see `welfare`.
    """
    means = {agent: float(np.mean(returns)) for agent, returns in agent_returns(episodes, interests).items()}
    measures = welfare(list(means.values())) if means and interests == "mixed" else {}
    own = {f"return/{agent}": mean for agent, mean in means.items()}
    return own | {f"welfare/{name}": value for name, value in measures.items()}


def equal_returns(episodes: Sequence[Episode], credited_reward: Literal["team", "own"] | None) -> dict[str, float]:
    """Compute the fraction of groups with equal returns. Advantages relative to the group's mean are then 0.

    The rollouts of one task form a group. If each task is played once, all completed episodes form one group. With
    credited_reward="own", the returns of each agent must be equal, otherwise the team returns. The metric
    `constant_sum` is the fraction of groups with equal team returns and unequal returns of agents. Returns {} if no
    group has two episodes.
    """
    groups: dict[int, list[Episode]] = defaultdict(list)
    for episode in episodes:
        if episode.is_complete:
            groups[episode.group].append(episode)
    compared = [group for group in groups.values() if len(group) > 1]
    if not compared and len(groups) > 1:
        compared = [[episode for group in groups.values() for episode in group]]
    if not compared:
        return {}
    teams = [[episode.team_return + episode.earlier_return for episode in group] for group in compared]
    pairs = [(_are_equal(team), _has_equal_own_returns(group)) for team, group in zip(teams, compared, strict=True)]
    return {
        "equal_returns": float(np.mean([own if credited_reward == "own" else team for team, own in pairs])),
        "constant_sum": float(np.mean([team and not own for team, own in pairs])),
    }


def _has_equal_own_returns(group: Sequence[Episode]) -> bool:
    returns = [episode.own_returns for episode in group]
    columns = [[each.get(agent, 0.0) for each in returns] for agent in {agent for each in returns for agent in each}]
    return all(map(_are_equal, columns))


def _are_equal(numbers: Sequence[float]) -> bool:
    """Return True if numbers are equal up to rounding errors, which are relative to the largest number."""
    return max(numbers) - min(numbers) <= 1e-9 * max(map(abs, numbers))


def episode_terms(episode: Episode) -> dict[str, float]:
    """Return an episode's reward terms, summed over turns, and its metrics, averaged over turns."""
    gathered: dict[str, list[float]] = defaultdict(list)
    for info in episode.infos:
        for name, value in info.items():
            gathered[name].append(value)
    return {
        name: sum(values) if name.startswith("reward/") else sum(values) / len(values)
        for name, values in gathered.items()
    }
