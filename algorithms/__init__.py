"""What is learned: objectives, the rollout collector, the trainer, and one module an algorithm.

To add an algorithm: a frozen config and a class with its credit rule, and a line here.
"""

from typing import Any

from .algorithm import ActorCritic, Algorithm
from .config import ActorCriticConfig, TrainConfig
from .iac import IAC, IACConfig
from .ippo import IPPO, IPPOConfig
from .maac import MAAC, MAACConfig
from .mappo import MAPPO, MAPPOConfig
from .published import CoLLMCCConfig, CoLLMDCConfig
from .reinforce import MAGRPO, MAREINFORCE, MARLOO, MAReMax, MARLOOConfig, ReinforceConfig

ALGORITHMS: dict[str, tuple[type[Algorithm[Any]], type[TrainConfig]]] = {
    "iac": (IAC, IACConfig),
    "maac": (MAAC, MAACConfig),
    "ippo": (IPPO, IPPOConfig),
    "mappo": (MAPPO, MAPPOConfig),
    "magrpo": (MAGRPO, ReinforceConfig),
    "mareinforce": (MAREINFORCE, ReinforceConfig),
    "marloo": (MARLOO, MARLOOConfig),
    "maremax": (MAReMax, ReinforceConfig),
    "collm-cc": (MAAC, CoLLMCCConfig),
    "collm-dc": (IAC, CoLLMDCConfig),
}
"""By the name that the command line takes: the credit rule and its settings."""

__all__ = [
    "ALGORITHMS",
    "IAC",
    "IPPO",
    "MAAC",
    "MAGRPO",
    "MAPPO",
    "MAREINFORCE",
    "MARLOO",
    "ActorCritic",
    "ActorCriticConfig",
    "Algorithm",
    "CoLLMCCConfig",
    "CoLLMDCConfig",
    "IACConfig",
    "IPPOConfig",
    "MAACConfig",
    "MAPPOConfig",
    "MARLOOConfig",
    "MAReMax",
    "ReinforceConfig",
    "TrainConfig",
]
