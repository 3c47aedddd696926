"""Report about runs as one HTML page: figures, tables with confidence intervals, and episodes."""
