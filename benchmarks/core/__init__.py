"""Core suite: all of collm's environments on held-out seeds, with one score per team."""
