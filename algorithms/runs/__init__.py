"""What a run is and leaves: experiments, run directories, checkpoints, logs, evaluations."""
