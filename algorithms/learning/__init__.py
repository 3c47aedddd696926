"""Episodes → gradient steps: the one training loop and its parts."""
