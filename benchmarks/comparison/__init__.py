"""Comparisons of algorithms on environments with several seeds: suites, their runs, and summaries of these."""
