"""Recorded episodes → how well critics foresaw the return, and how much the advantages scatter, turn by turn."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..algorithms import ALGORITHMS
from ..algorithms.grids import Grid


@dataclass(frozen=True)
class TurnDiagnostics:
    """Of one turn, over agents, episodes and updates of the last third of training."""

    turn: int
    return_variance: float
    """Of what the team still got from the turn on: the noise that a method without a baseline learns from."""
    advantage_square: float
    """Mean square of the advantages before they are normalized, in the same units."""
    explained_variance: float | None
    """1 - Var(return - value) / Var(return); None without a critic, or where all returns are the same."""


def diagnostics(episodes: Sequence[Mapping[str, Any]], config: Mapping[str, Any]) -> list[TurnDiagnostics]:
    """From the records in a run's `episodes.jsonl`.

    Advantages are made again from recorded rewards and values by the run's own rule, because those that were recorded
    are normalized. Episodes that were cut are left out: the value they were continued with is not recorded.
    """
    algorithm_class, config_class = ALGORITHMS[config["algorithm"]]
    algorithm = algorithm_class(config_class(**config["config"]))
    if getattr(algorithm.config, "critic_type", "v") != "v":
        return []  # Q(h, a), which advantages are made of there, is not recorded
    by_update: dict[int, list[Mapping[str, Any]]] = defaultdict(list)
    for row in episodes:
        by_update[row["update"]].append(row)
    gathered: dict[int, list[tuple[float, float, float]]] = defaultdict(list)
    for update in sorted(by_update)[len(by_update) * 2 // 3 :]:
        for agent in by_update[update][0]["agents"]:
            _gather(algorithm, agent, by_update[update], gathered)
    return [_turn(turn, rows, algorithm.critic_reads != "nothing") for turn, rows in sorted(gathered.items())]


def _gather(
    algorithm: Any, agent: str, rows: Sequence[Mapping[str, Any]], gathered: dict[int, list[tuple[float, float, float]]]
) -> None:
    played = [row for row in rows if agent in row["agents"] and "turns" in row["agents"][agent]]
    played = [row for row in played if row["agents"][agent]["is_terminated"]]
    if not played:
        return
    tracks = [row["agents"][agent]["turns"] for row in played]
    num_turns = max(len(track) for track in tracks)
    rewards, values = torch.zeros(len(tracks), num_turns), torch.zeros(len(tracks), num_turns + 1)
    is_real = torch.zeros(len(tracks), num_turns, dtype=torch.bool)
    for i, track in enumerate(tracks):
        rewards[i, : len(track)] = torch.tensor([turn["reward"] for turn in track])
        values[i, : len(track)] = torch.tensor([turn.get("value", 0.0) for turn in track])
        is_real[i, : len(track)] = True
    group = torch.tensor([row["group"] for row in played])
    advantages = algorithm.advantages(Grid(rewards, values, None, is_real, group))
    later = rewards.flip(1)
    returns = torch.zeros_like(rewards)
    running = torch.zeros(len(tracks))
    for t in range(num_turns):
        running = later[:, t] + algorithm.config.discount * running
        returns[:, num_turns - 1 - t] = running
    for i, turn in is_real.nonzero().tolist():
        gathered[turn].append((float(returns[i, turn]), float(values[i, turn]), float(advantages[i, turn])))


def _turn(turn: int, rows: Sequence[tuple[float, float, float]], has_critic: bool) -> TurnDiagnostics:
    returns, values, advantages = torch.tensor(rows, dtype=torch.float64).T
    variance = float(returns.var(correction=0))
    explained = None
    if has_critic and variance > 1e-12:
        explained = 1 - float((returns - values).var(correction=0)) / variance
    return TurnDiagnostics(turn, variance, float(advantages.square().mean()), explained)
