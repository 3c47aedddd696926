"""What each turn of an episode truly changed: the episode branches at every turn and is played on many times.

Axes: N episodes, T turns, 2 independent halves of the branches.

With the seed of an episode given, its return is a function of the actions. W[t] is the mean return of branches that
share the first t joint turns and are drawn from the policies from there on, so that the true effect of turn t is
W[t + 1] - W[t], in expectation without error: the environment's own draws are those of the seed in every branch.
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
"""Number of the first branch in the names of random streams: episodes have lower ones."""


@dataclass
class _Branch:
    """A copy of an episode under way."""

    env: ParallelEnv[str, Any, Any]
    observations: Mapping[str, Any]
    seed: int
    number: int
    place: tuple[int, int, int]  # half, episode, turn that it branched at
    earned: float
    turn: int


def branched_returns(
    make_env: Callable[[], ParallelEnv[str, Any, Any]],
    policies: Mapping[str, Policy],
    episodes: Sequence[Episode],
    num_branches: int,
) -> Floats:
    """W, [2, N, T + 1]: mean returns of two halves of the branches; both end with the episode's own return.

    Args:
        make_env: makes the environment that the episodes were played in.
        policies: policy of each agent.
        episodes: whole episodes of one number of turns.
        num_branches: branches per turn, an even number.

    Raises:
        ValueError: if the number is odd, or the episodes differ in their turns.
    """
    if num_branches < 2 or num_branches % 2:
        raise ValueError(f"num_branches must be even, as their halves are compared, got {num_branches}")
    if len(lengths := {episode.num_turns for episode in episodes}) != 1:
        raise ValueError(f"episodes must have one number of turns, got {sorted(lengths)}")
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
    """[2, N, T]: by how much each turn changed the expected return, by each half of the branches."""
    return np.diff(returns, axis=2)


def _play(branches: Sequence[_Branch], policies: Mapping[str, Policy]) -> None:
    """Play all branches to their ends, side by side."""
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
