"""Registry of environments, and conversion of Gymnasium's and PettingZoo's environments."""
