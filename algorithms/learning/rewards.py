"""Rewards to learn from: reward model, shift and scale, joint mode "cross", team rewards, KL penalty."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from ...agents.core import Divergence
from ...envs.vectors.vector import VectorEnv
from ..algorithm import Algorithm
from ..config import TrainConfig
from ..rollout.episode import Episode, Turn
from .cross_rollouts import average_cross_rewards
from .loss_terms import with_penalties

RewardProcessor = Callable[[float], float]
Rewarder = Callable[[Sequence[Episode]], Sequence[Episode]]


@dataclass(frozen=True, slots=True)
class RewardedEpisodes:
    """Episodes with the rewards to learn from, the range of rewards, and the extra steps of joint_mode="cross"."""

    episodes: list[Episode]
    num_extra_turns: int
    reward_range: tuple[float, float]


@dataclass
class Rewards:
    """Callable that computes the rewards to learn from.

    `rewarder` replaces the environment's rewards, for example by a reward model's. Then every reward is shifted, scaled
    and passed through `processor`.
    """

    algorithm: Algorithm[Any]
    vector: VectorEnv
    rewarder: Rewarder | None = None
    processor: RewardProcessor | None = None

    def __call__(self, episodes: Sequence[Episode], references: Mapping[str, Sequence[Tensor]]) -> RewardedEpisodes:
        """Return the episodes with the rewards to learn from. Raises `Divergence` if a reward is not finite.

        `references` are log-probabilities of the sampled tokens under each agent's reference policy, per track.
        """
        config, has_team_critic = self.algorithm.config, self.algorithm.has_team_critic
        rule = reward_rule(config, self.processor)
        # `credit.joint_grid` computes the team's rewards for a joint critic.
        pays_team = config.credited_reward != "own" and not has_team_critic
        if self.rewarder is not None:
            episodes = self.rewarder(episodes)
        num_extra_turns = 0
        if self.algorithm.crosses_rollouts:
            shaped, num_extra_turns = average_cross_rewards(episodes, self.vector, rule, pays_team=pays_team)
        else:
            shaped = with_rule(episodes, rule)
            if pays_team:
                shaped = with_team_rewards(shaped, config.discount)
            elif self.algorithm.critic_reads != "joint":
                shaped = with_own_rewards(shaped, config.discount)
        if references and config.reference_kl_in == "reward":
            shaped = with_penalties(shaped, references, config, sums_over_team=has_team_critic)
        return RewardedEpisodes(shaped, num_extra_turns, reward_range(shaped))


def reward_range(episodes: Sequence[Episode]) -> tuple[float, float]:
    """Return the smallest and largest reward of a turn. Raises `Divergence` if a reward to learn from is not finite."""
    rewards = []
    for episode in episodes:
        for agent, track in episode.tracks.items():
            for turn in track:
                if not math.isfinite(turn.reward):
                    fault = Divergence(
                        f"the reward to learn from is {turn.reward} in turn {turn.time + 1} of episode {episode.index} "
                        f"(seed {episode.seed})"
                    )
                    fault.agents = (agent,)
                    fault.remedy = (
                        "the environment's own reward is finite, so correct what changes it: reward_processor, "
                        "reward_model, reward_scale, reward_shift, or the KL penalty"
                    )
                    raise fault
                rewards.append(turn.reward)
        rewards += [reward for paid in episode.waiting.values() for reward in paid.values()]
    return min(rewards), max(rewards)


def reward_rule(config: TrainConfig, processor: RewardProcessor | None) -> RewardProcessor | None:
    """Return the function that changes every reward: shift and scale, then the processor. None: no change."""
    shift, scale = config.reward_shift, config.reward_scale
    if (shift, scale) == (0.0, 1.0):
        return processor
    if processor is None:
        return lambda reward: (reward + shift) * scale
    return lambda reward: processor((reward + shift) * scale)


def with_rule(episodes: Sequence[Episode], rule: RewardProcessor | None) -> list[Episode]:
    if rule is None:
        return list(episodes)
    return [
        replace(
            with_rewards(
                episode, {agent: [rule(turn.reward) for turn in track] for agent, track in episode.tracks.items()}
            ),
            waiting={
                agent: {time: rule(reward) for time, reward in paid.items()} for agent, paid in episode.waiting.items()
            },
        )
        for episode in episodes
    ]


def with_team_rewards(episodes: Sequence[Episode], discount: float) -> list[Episode]:
    """Return new episodes in which each turn is credited with the discounted team rewards until the agent's next turn.

        r'[k] = sum over joint turns t from turn k to the next one of discount^(t - turn k) * team reward[t]

    An agent that leaves is credited with all later rewards of the team, because its leaving may have caused them. The
    agent is marked as terminated: bootstrapping from its own value would count the rest of the episode twice. If the
    episode was cut, `credit.bootstrap_from_team` adds the value after the cut.
    """
    paid = []
    for episode in episodes:
        team = episode.team_rewards
        rewards = {agent: _until_next_turn(track, team, discount) for agent, track in episode.tracks.items()}
        live = episode.live_agents
        ends = {agent: agent not in live for agent in episode.is_terminated}
        paid.append(replace(with_rewards(episode, rewards), is_terminated=ends))
    return paid


def with_own_rewards(episodes: Sequence[Episode], discount: float) -> list[Episode]:
    """Return new episodes in which each turn is credited with the agent's discounted rewards until its next turn.

    Rewards before an agent's first turn do not depend on its actions, and are not credited.
    """

    def credited(episode: Episode) -> dict[str, list[float]]:
        return {
            agent: _until_next_turn(track, episode.own_rewards(agent), discount)
            for agent, track in episode.tracks.items()
        }

    return [with_rewards(episode, credited(episode)) if episode.waiting else episode for episode in episodes]


def _until_next_turn(track: Sequence[Turn], rewards: Sequence[float], discount: float) -> list[float]:
    """Return the discounted sum of the rewards of joint turns from each turn of a track to the track's next turn."""
    starts = [turn.time for turn in track]
    return [
        sum(discount**k * each for k, each in enumerate(rewards[start:end]))
        for start, end in zip(starts, [*starts[1:], len(rewards)], strict=True)
    ]


def with_rewards(episode: Episode, rewards: Mapping[str, Sequence[float]]) -> Episode:
    tracks = {
        agent: tuple(replace(turn, reward=reward) for turn, reward in zip(track, rewards[agent], strict=True))
        for agent, track in episode.tracks.items()
    }
    return replace(episode, tracks=tracks)
