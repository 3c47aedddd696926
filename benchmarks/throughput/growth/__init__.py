"""Growth with GPUs, machines and processes: what fits, what is sent, what bounds; arithmetic, and one measurement."""
