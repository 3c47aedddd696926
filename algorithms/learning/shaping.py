"""Reward shaping before learning: shift, scale, processor, and KL penalty to the reference."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from ..config import TrainConfig
from ..functions.losses import KL_ESTIMATORS
from ..rollout.episode import Episode

RewardProcessor = Callable[[float], float]


def reward_rule(config: TrainConfig, processor: RewardProcessor | None) -> RewardProcessor | None:
    """Function that shapes every reward: the settings' shift and scale, then the processor. None: no change."""
    shift, scale = config.reward_shift, config.reward_scale
    if (shift, scale) == (0.0, 1.0):
        return processor
    return lambda reward: _processed((reward + shift) * scale, processor)


def with_rewards(episodes: Sequence[Episode], rule: RewardProcessor | None) -> list[Episode]:
    """Episodes with the rule applied to every reward."""
    if rule is None:
        return list(episodes)
    return [
        replace(
            episode,
            tracks={
                agent: tuple(replace(turn, reward=rule(turn.reward)) for turn in track)
                for agent, track in episode.tracks.items()
            },
        )
        for episode in episodes
    ]


def with_team_rewards(episodes: Sequence[Episode], discount: float) -> list[Episode]:
    """Episodes in which each turn is paid what the team earns until the agent's next turn, or until the end.

        r'[k] = sum over joint turns t from turn k to the next one of discount^(t - turn k) * team reward[t]

    So an agent that leaves is credited with what the team earns later: its leaving may have earned it. An agent that
    has left, terminated or truncated, counts as terminated in the result: its last reward already contains the rest of
    the episode, and its own value would count that rest twice. If the episode itself was cut, the value of what comes
    after the cut is added later: see `grids.with_team_ends`.

    Args:
        discount: gamma per joint turn.
    """
    paid = []
    for episode in episodes:
        rewards = episode.team_rewards
        tracks = {}
        for agent, track in episode.tracks.items():
            ends = [*(turn.time for turn in track[1:]), len(rewards)]
            tracks[agent] = tuple(
                replace(turn, reward=sum(discount**k * each for k, each in enumerate(rewards[turn.time : end])))
                for turn, end in zip(track, ends, strict=True)
            )
        live = episode.live_agents
        paid.append(replace(episode, tracks=tracks, is_terminated={agent: agent not in live for agent in tracks}))
    return paid


def with_penalties(
    episodes: Sequence[Episode],
    references: Mapping[str, Sequence[Tensor]],
    config: TrainConfig,
    *,
    sums_over_team: bool = False,
) -> list[Episode]:
    """Episodes with a KL penalty subtracted from each turn's reward.

        r' = r - coefficient * sum over the completion's tokens of KL(pi || reference)

    Args:
        references: by agent, the reference's log-probabilities of the sampled tokens, one tensor per track.
        config: source of `reference_kl_coef` and `reference_kl_estimator`.
        sums_over_team: multiply the penalty by the number of agents, for rewards that are averaged over the agents
            afterwards (joint critic). The team's reward is then charged the sum of all agents' penalties, and a nat
            costs the coefficient, as without a joint critic.
    """
    estimate = KL_ESTIMATORS[config.reference_kl_estimator or "k1"]
    pieces = {agent: iter(logprobs) for agent, logprobs in references.items()}
    penalized = []
    for episode in episodes:
        tracks = dict(episode.tracks)
        factor = config.reference_kl_coef * ((episode.num_agents or len(tracks)) if sums_over_team else 1)
        for agent, track in episode.tracks.items():
            if agent not in pieces:
                continue
            sampled = [torch.from_numpy(turn.completion.logprobs) for turn in track]
            anchors = torch.split(next(pieces[agent]).cpu(), [len(own) for own in sampled])
            prices = [float(estimate(own, anchor).sum()) for own, anchor in zip(sampled, anchors, strict=True)]
            tracks[agent] = tuple(
                replace(turn, reward=turn.reward - factor * price) for turn, price in zip(track, prices, strict=True)
            )
        penalized.append(replace(episode, tracks=tracks))
    return penalized


def _processed(reward: float, processor: RewardProcessor | None) -> float:
    return reward if processor is None else processor(reward)
