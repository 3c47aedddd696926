"""Comparisons of algorithms on environments with several seeds: suites, runs, and summaries of runs."""
