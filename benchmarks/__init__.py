"""Command line of collm, and measurements: comparisons, statistics, reports, throughput."""
