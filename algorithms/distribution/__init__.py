"""Data parallelism: ranks run the same program and split the work."""
