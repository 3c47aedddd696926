"""Policies and environments → episodes."""
