"""Rollouts: policies play episodes in environments."""
