"""Registry of environments, and conversion of environments of Gymnasium and PettingZoo."""
