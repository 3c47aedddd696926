"""Effects of single turns on the expected return, estimated with branches: copies of an episode from a turn on.

Axes: N episodes, T turns, 2 independent halves of the branches.

For a given seed, the return depends only on the actions: the environment's random numbers are equal in every branch.
W[t] is the mean return of branches that share the first t joint turns, with later actions sampled from the policies.
W[t + 1] - W[t] is an unbiased estimate of the true effect of turn t.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
from pettingzoo import ParallelEnv

from collm.agents.core import Policy, Request
from collm.algorithms.rollout.episode import Episode
from collm.algorithms.rollout.intervals import Floats

FIRST_BRANCH = 2**20
"""Number of the first branch in keys of random streams. Episodes have lower numbers."""


@dataclass
class _Branch:
    """Copy of an unfinished episode."""

    env: ParallelEnv[str, Any, Any]
    observations: Mapping[str, Any]
    seed: int
    number: int
    place: tuple[int, int, int]  # half, episode, and first turn with newly sampled actions
    earned: float
    turn: int


def branched_returns(
    make_env: Callable[[], ParallelEnv[str, Any, Any]],
    policies: Mapping[str, Policy],
    episodes: Sequence[Episode],
    num_branches: int,
) -> Floats:
    """Return W [2, N, T + 1]: mean returns of two halves of the branches. W[:, :, T] is the episode's own return.

    Args:
        make_env: function that makes the environment of the episodes.
        policies: policy of each agent.
        episodes: complete episodes with equal numbers of turns.
        num_branches: branches per turn, an even number.

    Raises:
        ValueError: if `num_branches` is odd, or the episodes have different numbers of turns.
    """
    if num_branches < 2 or num_branches % 2:
        raise ValueError(f"num_branches={num_branches} must be even and at least 2, to compare two halves")
    if len(lengths := {episode.num_turns for episode in episodes}) != 1:
        raise ValueError(f"episodes must have equal numbers of turns, got {sorted(lengths)}")
    num_turns = lengths.pop()
    returns = np.zeros((2, len(episodes), num_turns + 1))
    returns[:, :, num_turns] = [episode.team_return for episode in episodes]
    branches: list[_Branch] = []
    for index, episode in enumerate(episodes):
        env = make_env()
        observations, _ = env.reset(seed=episode.seed, options=episode.options)
        for turn in range(num_turns):
            for copy in range(num_branches):
                place = copy % 2, index, turn
                number = FIRST_BRANCH + len(branches)
                earned = sum(episode.team_rewards[:turn])
                branches.append(_Branch(deepcopy(env), observations, episode.seed, number, place, earned, turn))
            observations = env.step({agent: track[turn].completion.action for agent, track in episode.tracks.items()})[
                0
            ]
    _play(branches, policies)
    for branch in branches:
        returns[branch.place] += branch.earned / (num_branches / 2)
    return returns


def turn_effects(returns: Floats) -> Floats:
    """Return [2, N, T]: the change of the expected return by each turn, estimated from each half of the branches."""
    return np.diff(returns, axis=2)


def _play(branches: Sequence[_Branch], policies: Mapping[str, Policy]) -> None:
    """Play all branches to their ends, with one policy call per agent and turn."""
    running = list(branches)
    while running := [branch for branch in running if branch.env.agents]:
        actions: list[dict[str, Any]] = [{} for _ in running]
        for agent, policy in policies.items():
            asked = [number for number, branch in enumerate(running) if agent in branch.env.agents]
            requests = [_request(running[number], agent) for number in asked]
            for number, completion in zip(asked, policy.act(requests), strict=True):
                actions[number][agent] = completion.action
        for branch, chosen in zip(running, actions, strict=True):
            branch.observations, rewards, *_ = branch.env.step(chosen)
            branch.earned += sum(rewards.values()) / len(branch.env.possible_agents)
            branch.turn += 1


def _request(branch: _Branch, agent: str) -> Request:
    seat = branch.env.possible_agents.index(agent)
    return Request(agent, branch.observations[agent], (branch.seed, branch.number, seat, branch.turn))
