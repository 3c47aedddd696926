"""Claims and how they are measured: the command line, comparisons, statistics, reports, throughput."""
