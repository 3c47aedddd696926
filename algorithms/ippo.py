"""IPPO, independent proximal policy optimization: IAC that goes over its episodes several times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from .iac import IAC, IACConfig


@dataclass(frozen=True, kw_only=True)
class IPPOConfig(IACConfig):
    """Settings of IPPO."""

    trace: float = 0.95
    """Lambda of gae: 0 trusts the critic, 1 the return."""
    ppo_epochs: int = 4
    """How often each update goes over its episodes; with clip_range=None it must be 1."""
    mini_batch_size: int | None = None
    """Episodes of an optimizer step (turns, for vectors); None: all of the update's."""
    clip_range: float | None = 0.2
    """PPO's clip of the probability ratio, of each turn or token by `credit`; None: no ratio, plain policy gradient."""


@final
class IPPO(IAC[IPPOConfig]):
    """IAC's credit, with ratios to the policy that sampled and a clip that bounds how far one update may move it.

    Source: IPPO (arXiv:2011.09533), PPO (arXiv:1707.06347). The ratio is a whole completion's (`credit="turn"`), whose
    logarithm grows with its length, or each token's (`credit="token"`). Without a clip it is IAC with GAE.
    """
