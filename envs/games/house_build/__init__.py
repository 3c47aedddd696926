"""HouseBuild: builders build a house with limited stocks."""

from .env import HouseBuild, houses
from .rules import House, house, new_house, score

__all__ = ["House", "HouseBuild", "house", "houses", "new_house", "score"]
