"""Sampling by vLLM servers in place of this process."""
