"""Building together: worlds of blocks."""
