"""Core suite: evaluation on all of collm's environments with held-out seeds, and one score per team."""
