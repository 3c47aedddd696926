"""MAPPO, multi-agent proximal policy optimization: MAAC that goes over its episodes several times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from .maac import MAAC, MAACConfig


@dataclass(frozen=True, kw_only=True)
class MAPPOConfig(MAACConfig):
    """Settings of MAPPO."""

    trace: float = 0.95
    """Lambda of gae: 0 trusts the critic, 1 the return."""
    ppo_epochs: int = 4
    """How often each update goes over its episodes; with clip_range=None it must be 1."""
    mini_batch_size: int | None = None
    """Episodes of an optimizer step (turns, for vectors); None: all of the update's."""
    clip_range: float | None = 0.2
    """PPO's clip of the probability ratio, of each turn or token by `credit`; None: no ratio, plain policy gradient."""


@final
class MAPPO(MAAC[MAPPOConfig]):
    """MAAC's credit from one critic on the joint history, with PPO's clipped ratios for each agent's own completions.

    Source: MAPPO (arXiv:2103.01955), which clips values too (`value_clip_range`) and normalizes them.
    """
