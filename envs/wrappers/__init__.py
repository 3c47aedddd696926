"""Environment wrappers: rewards, shorter observations, recording, shares of the return, and scripted partners."""

from .leavers import KeptLeavers
from .memory import LastTurns
from .partnered import Partnered
from .recording import Recorded
from .reward_functions import JudgedTurn, RewardFunctions
from .shaping import PotentialShaping
from .shares import Shares
from .single_model import SingleModel

__all__ = [
    "JudgedTurn",
    "KeptLeavers",
    "LastTurns",
    "Partnered",
    "PotentialShaping",
    "Recorded",
    "RewardFunctions",
    "Shares",
    "SingleModel",
]
