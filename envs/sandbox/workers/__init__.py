"""The processes in which code runs, as the trusted side holds them."""
