"""Writing together: two writers, one turn."""
