"""Other views of the same environments."""
