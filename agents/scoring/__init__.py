"""Log-probabilities of sampled tokens, with gradients, by one forward pass per episode."""
