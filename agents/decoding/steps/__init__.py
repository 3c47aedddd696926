"""Decoding steps: eager, or recorded as CUDA graphs."""
