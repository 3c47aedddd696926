"""Floors and ceilings of an environment: mean returns of the scripted players."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...envs.players import HONEST_PLAYERS, PLAYERS, played, scripted_player


def mean_scores(env: Any, num_episodes: int) -> Mapping[str, float | None]:
    """Mean team return of each scripted player on the same seeds; None where there is no such player."""
    scores: dict[str, float | None] = {}
    for name in (*PLAYERS, *HONEST_PLAYERS):
        decide = scripted_player(env, name)
        if decide is None:
            scores[name] = None
        else:
            scores[name] = sum(played(env, decide, seed)[0] for seed in range(num_episodes)) / num_episodes
    return scores
