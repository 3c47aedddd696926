"""Sampling on vLLM servers."""
