"""IPPO and MAPPO, proximal policy optimization: IAC and MAAC with clipped ratios over several epochs."""

from __future__ import annotations

from typing import ClassVar, final

from .config import IPPOConfig, MAPPOConfig
from .iac import IAC
from .maac import MAAC


@final
class IPPO(IAC[IPPOConfig]):
    """IAC with PPO's loss: clipped probability ratios to the sampling policy bound the change per update.

    The ratio is per completion (`credit="turn"`) or per token (`credit="token"`). The log-ratio of a completion grows
    with its length. Without `clip_range`, IAC's loss is used, whose gradient is wrong after the first epoch. Source:
    IPPO (arXiv:2011.09533), PPO (arXiv:1707.06347).
    """

    may_repeat_unclipped: ClassVar[bool] = True


@final
class MAPPO(MAAC[MAPPOConfig]):
    """MAAC with PPO's loss: advantages from one critic on the joint history, clipped probability ratios per agent.

    Source: MAPPO (arXiv:2103.01955), which also clips values (`value_clip_range`) and normalizes values.
    """

    may_repeat_unclipped: ClassVar[bool] = True
