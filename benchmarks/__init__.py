"""What is claimed: the command line, comparisons, statistics, reports, throughput."""
