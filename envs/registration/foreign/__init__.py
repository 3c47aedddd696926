"""Conversion of environments of Gymnasium and PettingZoo to parallel environments."""

from .gym_as_parallel import GymAsParallel, TupleTeam
from .team import as_team
from .turn_based import TurnBased

__all__ = ["GymAsParallel", "TupleTeam", "TurnBased", "as_team"]
