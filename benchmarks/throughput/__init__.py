"""Speed measurements, each with a reference in the same process."""
