"""ResourceGathering: two gatherers with different tools."""

from .env import ResourceGathering, lands
from .generator import new_land
from .rules import Land

__all__ = ["Land", "ResourceGathering", "lands", "new_land"]
