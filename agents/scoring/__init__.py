"""Sampled tokens → their log-probabilities with a gradient, in one forward pass per episode."""
