"""Speed measurements. Each compares a workload with a reference in the same process."""
