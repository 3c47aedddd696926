"""Many copies of an environment stepped together, in this process or in worker processes."""
