"""A page in which a person plays the Mini environments with a trained team, offline in a browser."""
