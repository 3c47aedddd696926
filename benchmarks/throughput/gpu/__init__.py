"""The GPU plan: what is to be known of one GPU, in pieces that resume; on a CPU with tiny shapes it runs end to end."""
