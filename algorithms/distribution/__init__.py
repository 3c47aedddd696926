"""Ranks: the processes that train together, each with the same control and a share of the work."""
