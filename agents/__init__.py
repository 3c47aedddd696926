"""Who acts: policies, critics, decoding."""
