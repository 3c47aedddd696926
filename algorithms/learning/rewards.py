"""Rewards to learn from: reward model, shift and scale, cross rollouts, team rewards, KL penalty."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...agents.core import Divergence
from ...envs.vectors.vector import VectorEnv
from ..algorithm import Algorithm
from ..config import TrainConfig
from ..functions.baselines import cross_returns
from ..functions.losses import KL_ESTIMATORS
from ..rollout.episode import Episode

RewardProcessor = Callable[[float], float]
Rewarder = Callable[[Sequence[Episode]], Sequence[Episode]]


@dataclass(frozen=True, slots=True)
class RewardedEpisodes:
    """Episodes with the rewards to learn from. The episodes of the rollout keep the environment's rewards."""

    episodes: list[Episode]
    num_extra_turns: int
    """Environment steps that were taken to score cross rollouts."""
    reward_range: tuple[float, float]
    """Smallest and largest reward of a turn."""


@dataclass
class Rewards:
    """Computes the rewards to learn from.

    Args:
        algorithm: source of the settings; says whether rollouts are crossed and a joint critic reads them.
        vector: copies of the environment, for cross rollouts.
        rewarder: replaces the rewards, such as a reward model does. None: the environment's rewards.
        processor: applied to every reward after shift and scale. None: no change.
    """

    algorithm: Algorithm[Any]
    vector: VectorEnv
    rewarder: Rewarder | None = None
    processor: RewardProcessor | None = None

    def __call__(self, episodes: Sequence[Episode], references: Mapping[str, Sequence[Tensor]]) -> RewardedEpisodes:
        """Compute the rewards of episodes.

        Args:
            episodes: as played.
            references: by agent, the reference's log-probabilities of the sampled tokens, one tensor per track; empty
                without a KL penalty.

        Raises:
            Divergence: if a reward is not finite.
        """
        config, is_joint = self.algorithm.config, self.algorithm.critic_reads == "joint"
        rule = reward_rule(config, self.processor)
        # The grid of a joint critic has the team's rewards in any case.
        pays_team = config.credited_reward == "team" and not is_joint
        if self.rewarder is not None:
            episodes = self.rewarder(episodes)
        num_extra_turns = 0
        if self.algorithm.crosses_rollouts:
            shaped, num_extra_turns = crossed(episodes, self.vector, rule, pays_team=pays_team)
        else:
            shaped = with_rewards(episodes, rule)
            if pays_team:
                shaped = with_team_rewards(shaped, config.discount)
        if references and config.reference_kl_in == "reward":
            shaped = with_penalties(shaped, references, config, sums_over_team=is_joint)
        return RewardedEpisodes(shaped, num_extra_turns, reward_range(shaped))


def reward_range(episodes: Sequence[Episode]) -> tuple[float, float]:
    """Smallest and largest reward of a turn.

    Raises:
        Divergence: if a reward is not finite, with its agent, episode and turn. The environment's own rewards are
            always finite.
    """
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
    return min(rewards), max(rewards)


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
    """Episodes in which the reward of a turn is what the team earns until the agent's next turn, or until the end.

        r'[k] = sum over joint turns t from turn k to the next one of discount^(t - turn k) * team reward[t]

    An agent that leaves is credited with what the team earns later, because its leaving may have earned it. In the
    result it counts as terminated: its last reward contains the rest of the episode, and bootstrapping with its own
    value would count the rest twice. If the episode was cut, `credit.with_team_ends` adds the value after the cut.

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


def crossed(
    episodes: Sequence[Episode], vector: VectorEnv, rule: RewardProcessor | None, *, pays_team: bool = False
) -> tuple[list[Episode], int]:
    """Joint mode "cross": average each completion's reward over all joint actions of its group that contain it.

    G rollouts of a task give each of N agents G completions of one prompt. In the mode "aligned", completion g of one
    agent is combined with completion g of the others only. In the mode "cross", the environment scores all G**N joint
    actions, in branches that start from the same seed: lower variance from the same completions, for more environment
    steps. Only games of one turn allow it, because after the first turn the rollouts have different histories.

    Args:
        episodes: episodes of one turn, in groups of one size; each group from one seed.
        vector: copies of their environment, free to be reset.
        rule: applied to each joint action's rewards before they are averaged.
        pays_team: credit all agents with the mean of their rewards; False: each with its own.

    Returns:
        The episodes, and the environment steps of the branches: G**N - G per group.

    Raises:
        ValueError: if an episode has more turns, or if the environment does not start alike from one seed.
    """
    groups: dict[int, list[int]] = defaultdict(list)
    for place, episode in enumerate(episodes):
        if episode.num_turns != 1:
            raise ValueError(
                f"joint_mode='cross' exchanges the completions of one prompt, but an episode has {episode.num_turns} "
                "turns; use joint_mode='aligned'"
            )
        groups[episode.group].append(place)
    shaped = list(episodes)
    for places in groups.values():
        group = [episodes[place] for place in places]
        for agent, credits in _credits(group, vector, rule, pays_team).items():
            for place, credit in zip(places, credits, strict=True):
                track = tuple(replace(turn, reward=credit) for turn in episodes[place].tracks[agent])
                shaped[place] = replace(shaped[place], tracks={**shaped[place].tracks, agent: track})
    num_steps = sum(len(places) ** len(episodes[places[0]].tracks) - len(places) for places in groups.values())
    return shaped, num_steps


def _credits(
    group: Sequence[Episode], vector: VectorEnv, rule: RewardProcessor | None, pays_team: bool
) -> dict[str, list[float]]:
    """By agent, the averaged reward of each of its completions."""
    agents = list(group[0].tracks)
    size, num_agents = len(group), len(agents)
    # One grid of joint rewards per agent: their rewards may differ.
    rewards = [torch.zeros([size] * num_agents, dtype=torch.float64) for _ in agents]
    for g, episode in enumerate(group):
        for i, agent in enumerate(agents):
            rewards[i][(g,) * num_agents] = episode.tracks[agent][0].reward
    others = [chosen for chosen in product(range(size), repeat=num_agents) if len(set(chosen)) > 1]
    for start in range(0, len(others), vector.num_envs):
        chunk = others[start : start + vector.num_envs]
        actions: dict[int, Mapping[str, Any]] = {}
        for copy, chosen in enumerate(chunk):
            observations, _ = vector.reset(copy, group[0].seed, group[0].options)
            _check_same_start(observations, group)
            actions[copy] = {
                agent: group[g].tracks[agent][0].completion.action for agent, g in zip(agents, chosen, strict=True)
            }
        results = vector.step(actions)
        for copy, chosen in enumerate(chunk):
            for i, agent in enumerate(agents):
                rewards[i][chosen] = results[copy][1][agent]
    if rule is not None:
        rewards = [grid.apply_(rule) for grid in rewards]
    if pays_team:
        rewards = [torch.stack(rewards).sum(dim=0) / (group[0].num_agents or num_agents)] * num_agents
    return {agent: cross_returns(rewards[i][None])[0, i].tolist() for i, agent in enumerate(agents)}


def _check_same_start(observations: Mapping[str, Any], group: Sequence[Episode]) -> None:
    for episode in group:
        for agent, track in episode.tracks.items():
            if not np.array_equal(np.asarray(observations[agent]), np.asarray(track[0].observation)):
                raise ValueError(
                    f"joint_mode='cross' starts branches from a seed, but from seed {episode.seed} {agent!r} read "
                    "something else this time; use joint_mode='aligned', or make reset(seed=...) deterministic"
                )
