"""Experiments of `collm benchmark` that are no suites of runs, each with options of its own."""
