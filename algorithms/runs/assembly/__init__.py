"""From names and settings to what trains: the experiment, its policies, critics and trainer, and what is refused."""
