"""The embedded model: a small causal language model that ships with the package."""
