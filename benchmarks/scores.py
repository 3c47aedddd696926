"""Floors and ceilings: what the reference, random and empty players score in an environment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

PLAYERS = ("reference", "random", "empty")


def play_episode(env: Any, decide: Callable[[str, Any], Any], seed: int) -> float:
    """The team's undiscounted return of one episode."""
    observations, _ = env.reset(seed=seed)
    rewards: dict[str, float] = {}
    while env.agents:
        actions = {agent: decide(agent, observations[agent]) for agent in env.agents}
        observations, step_rewards, *_ = env.step(actions)
        for agent, reward in step_rewards.items():
            rewards[agent] = rewards.get(agent, 0.0) + reward
    return sum(rewards.values()) / len(rewards)


def player(env: Any, name: str, seed: int = 0) -> Callable[[str, Any], Any] | None:
    """A scripted player of that name; None where the environment has no reference player."""
    if name == "empty":
        return lambda agent, observation: ""
    if name == "random":
        for number, agent in enumerate(env.possible_agents):
            env.action_space(agent).seed(seed + number)
        return lambda agent, observation: env.action_space(agent).sample()
    reply = getattr(env, "reference_reply", None)
    return None if reply is None else lambda agent, observation: reply(agent)


def mean_scores(env: Any, num_episodes: int) -> Mapping[str, float | None]:
    """Mean team return of each scripted player on the same seeds; None where there is no such player."""
    scores: dict[str, float | None] = {}
    for name in PLAYERS:
        decide = player(env, name)
        if decide is None:
            scores[name] = None
        else:
            scores[name] = sum(play_episode(env, decide, seed) for seed in range(num_episodes)) / num_episodes
    return scores
