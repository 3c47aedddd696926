"""Recorded episodes → explained variance of the critics and mean square of the advantages, turn by turn."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class TurnDiagnostics:
    """Numbers of one turn, over the agents, episodes and updates of the last third of training."""

    turn: int
    """Turns that the agent had before it in the episode (in the piece of one, where updates cut episodes)."""
    return_variance: float
    """Variance of the return-to-go that was learned from: the noise that a method without a baseline learns from."""
    advantage_square: float
    """Mean square of the advantages before they were normalized, in the same units."""
    explained_variance: float | None
    """1 - Var(return - value) / Var(return); None without a critic, or where all returns are the same."""


def diagnostics(episodes: Sequence[Mapping[str, Any]], *, has_critic: bool) -> list[TurnDiagnostics]:
    """Read what training recorded of its credit in a run's `episodes.jsonl`; nothing is computed again.

    Turns without `raw_advantage` and `return_to_go` are left out: of agents that act by vectors or do not learn, and of
    runs from before both were recorded.
    """
    updates = sorted({row["update"] for row in episodes})
    last_third = set(updates[len(updates) * 2 // 3 :])
    credited: dict[int, list[tuple[float, float, float]]] = defaultdict(list)
    for row in episodes:
        if row["update"] not in last_third:
            continue
        for record in row["agents"].values():
            for number, turn in enumerate(record.get("turns", ())):
                if "raw_advantage" in turn:
                    credited[number].append((turn["return_to_go"], turn["value"], turn["raw_advantage"]))
    return [_of_turn(number, rows, has_critic) for number, rows in sorted(credited.items())]


def _of_turn(turn: int, rows: Sequence[tuple[float, float, float]], has_critic: bool) -> TurnDiagnostics:
    returns, values, advantages = np.array(rows, dtype=np.float64).T  # null, for what was not finite, becomes nan
    variance = float(returns.var())
    explained = None
    if has_critic and variance > 1e-12:
        explained = 1 - float((returns - values).var()) / variance
    return TurnDiagnostics(turn, variance, float(np.square(advantages).mean()), explained)
