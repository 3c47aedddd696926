"""Training runs: experiments, run folders, checkpoints, loggers and evaluations."""
