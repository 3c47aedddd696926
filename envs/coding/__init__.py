"""Two programmers, one function."""
