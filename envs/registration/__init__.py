"""Registry of environments, and conversion of Gymnasium and PettingZoo environments."""
