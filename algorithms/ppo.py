"""IPPO and MAPPO, proximal policy optimization: IAC and MAAC with clipped ratios over several epochs."""

from __future__ import annotations

from typing import ClassVar, final

from .config import IPPOConfig, MAPPOConfig
from .iac import IAC
from .maac import MAAC


@final
class IPPO(IAC[IPPOConfig]):
    """IAC's advantages, with clipped probability ratios to the sampling policy, which bound the change per update.

    The ratio is per completion (`credit="turn"`), where its logarithm grows with the length, or per token
    (`credit="token"`). Without `clip_range` the loss is IAC's policy gradient, which is wrong after the first epoch.
    Source: IPPO (arXiv:2011.09533), PPO (arXiv:1707.06347).
    """

    may_repeat_unclipped: ClassVar[bool] = True


@final
class MAPPO(MAAC[MAPPOConfig]):
    """MAAC's advantages from one critic on the joint history, with PPO's clipped ratios per agent.

    Source: MAPPO (arXiv:2103.01955), which also clips values (`value_clip_range`) and normalizes them.
    """

    may_repeat_unclipped: ClassVar[bool] = True
