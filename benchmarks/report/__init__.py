"""One page about runs: figures, tables with intervals, and episodes to read."""
