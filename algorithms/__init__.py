"""What is learned: objectives, the rollout collector, the trainer, and one module an algorithm.

To add an algorithm: a frozen config and a class with its credit rule, and a line here.
"""

from typing import Any

from .algorithm import ActorCritic, Algorithm
from .config import ActorCriticConfig, TrainConfig
from .iac import IAC, IACConfig
from .maac import MAAC, MAACConfig
from .reinforce import MAGRPO, MAREINFORCE, MARLOO, MAReMax, ReinforceConfig

ALGORITHMS: dict[str, tuple[type[Algorithm[Any]], type[TrainConfig]]] = {
    "iac": (IAC, IACConfig),
    "maac": (MAAC, MAACConfig),
    "magrpo": (MAGRPO, ReinforceConfig),
    "mareinforce": (MAREINFORCE, ReinforceConfig),
    "marloo": (MARLOO, ReinforceConfig),
    "maremax": (MAReMax, ReinforceConfig),
}
"""By the name that the command line takes: the credit rule and its settings."""

__all__ = [
    "ALGORITHMS",
    "IAC",
    "MAAC",
    "MAGRPO",
    "MAREINFORCE",
    "MARLOO",
    "ActorCritic",
    "ActorCriticConfig",
    "Algorithm",
    "IACConfig",
    "MAACConfig",
    "MAReMax",
    "ReinforceConfig",
    "TrainConfig",
]
