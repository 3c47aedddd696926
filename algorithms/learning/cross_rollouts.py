"""Joint mode "cross": rewards of all joint actions that the completions of a group can form."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import torch

from ...envs.vectors.vector import VectorEnv
from ..functions.baselines import cross_returns
from ..rollout.episode import Episode


def average_cross_rewards(
    episodes: Sequence[Episode],
    vector: VectorEnv,
    rule: Callable[[float], float] | None,
    *,
    pays_team: bool = False,
) -> tuple[list[Episode], int]:
    """Average each completion's reward over all joint actions of its group that contain the completion.

    G rollouts of a task give each of N agents G completions of one prompt. The copies in `vector` are reset with the
    task's seed and score all G**N joint actions. `rule` is applied to each reward before the average. `pays_team`
    credits all agents with the mean of their rewards, including the rewards of waiting agents.

    Returns the new episodes, and the number of extra environment steps: G**N - G per group. Raises `ValueError` if an
    episode has more than one turn, or if two resets with one seed give different observations.
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
    num_steps = 0
    for places in groups.values():
        group = [episodes[place] for place in places]
        rewards = _average_rewards(group, vector, rule, pays_team)
        for number, (place, episode) in enumerate(zip(places, group, strict=True)):
            tracks = {agent: (replace(episode.tracks[agent][0], reward=own[number]),) for agent, own in rewards.items()}
            shaped[place] = replace(episode, tracks=tracks)
        num_steps += len(group) ** len(group[0].tracks) - len(group)
    return shaped, num_steps


def _average_rewards(
    group: Sequence[Episode], vector: VectorEnv, rule: Callable[[float], float] | None, pays_team: bool
) -> dict[str, list[float]]:
    agents = list(group[0].tracks)
    size, num_agents = len(group), len(agents)
    # Joint rewards [G, ..., G] of each agent. The rewards may differ, and waiting agents get rewards, too.
    rewards = {agent: torch.zeros([size] * num_agents, dtype=torch.float64) for agent in (*agents, *group[0].waiting)}
    for g, episode in enumerate(group):
        for agent, grid in rewards.items():
            grid[(g,) * num_agents] = episode.own_return(agent)
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
            for agent, grid in rewards.items():
                grid[chosen] = results[copy][1][agent]
    if rule is not None:
        rewards = {agent: grid.apply_(rule) for agent, grid in rewards.items()}
    if pays_team:
        team = torch.stack(list(rewards.values())).sum(dim=0) / (group[0].num_agents or num_agents)
        rewards = dict.fromkeys(agents, team)
    return {agent: cross_returns(rewards[agent][None])[0, i].tolist() for i, agent in enumerate(agents)}


def _check_same_start(observations: Mapping[str, Any], group: Sequence[Episode]) -> None:
    for episode in group:
        for agent, track in episode.tracks.items():
            if not np.array_equal(np.asarray(observations[agent]), np.asarray(track[0].observation)):
                raise ValueError(
                    f"joint_mode='cross' needs equal observations after two resets with one seed, but seed "
                    f"{episode.seed} gave {agent!r} another observation; make reset(seed=...) deterministic or use "
                    "joint_mode='aligned'"
                )
