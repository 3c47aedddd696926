"""Log-probabilities of sampled tokens, with gradients. One forward pass scores all turns of an episode."""
