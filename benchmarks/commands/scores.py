"""Floors and ceilings of an environment: mean returns of the scripted players."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...envs.players import HONEST_PLAYERS, PLAYERS, played, scripted_player


def play_episode(env: Any, decide: Callable[[str, Any], Any], seed: int) -> float:
    """Undiscounted team return of one episode."""
    return played(env, decide, seed)[0]


def mean_scores(env: Any, num_episodes: int) -> Mapping[str, float | None]:
    """Mean team return of each scripted player on the same seeds; None where there is no such player."""
    scores: dict[str, float | None] = {}
    for name in (*PLAYERS, *HONEST_PLAYERS):
        decide = scripted_player(env, name)
        if decide is None:
            scores[name] = None
        else:
            scores[name] = sum(play_episode(env, decide, seed) for seed in range(num_episodes)) / num_episodes
    return scores
